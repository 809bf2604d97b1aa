import { describe, expect, it } from 'vitest'
import { toOciConfig } from '../../../src/engine/slots/oci-config.ts'
import { slotSeccomp } from '../../../src/engine/slots/slot-seccomp.ts'

const spec = {
  slotRoot: '/state/slot-root',
  arch: 'x64',
  openFilesMax: 20_000,
  devicesDir: '/state/devices/slt_1',
} as const
const cgroup = { ociPath: '/glovebox/a/slt_1/base' }
const ids = { first: 0x7000_0000 }

const capabilities = [
  'CAP_SYS_ADMIN',
  'CAP_SYS_CHROOT',
  'CAP_NET_ADMIN',
  'CAP_SETUID',
  'CAP_SETGID',
  'CAP_SETPCAP',
  'CAP_KILL',
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_NET_BIND_SERVICE',
]
const device = (minor: number) => ({ allow: true, type: 'c', major: 1, minor, access: 'rw' })
const mapping = [{ containerID: 0, hostID: 0x7000_0000, size: 65_536 }]

describe('the configuration of a slot', () => {
  it('has exactly this content', () => {
    expect(toOciConfig(spec, ids, cgroup)).toEqual({
      ociVersion: '1.0.2',
      hostname: 'glovebox',
      root: { path: '/state/slot-root', readonly: true },
      mounts: [
        { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
        {
          destination: '/dev',
          type: 'tmpfs',
          source: 'tmpfs',
          options: ['nosuid', 'noexec', 'strictatime', 'mode=755', 'size=64k'],
        },
        {
          destination: '/scratch',
          type: 'tmpfs',
          source: 'tmpfs',
          options: ['nosuid', 'nodev', 'mode=755', 'size=16m'],
        },
        ...['null', 'zero', 'full', 'random', 'urandom', 'tty'].map((name) => ({
          destination: `/devices/${name}`,
          type: 'bind',
          source: `/state/devices/slt_1/${name}`,
          options: ['bind', 'nosuid', 'noexec'],
        })),
      ],
      process: {
        terminal: false,
        user: { uid: 0, gid: 0 },
        args: ['/guest'],
        env: ['PATH=/nowhere'],
        cwd: '/',
        capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
        noNewPrivileges: true,
        oomScoreAdj: 0,
        rlimits: [{ type: 'RLIMIT_NOFILE', soft: 1_024, hard: 20_000 }],
      },
      linux: {
        cgroupsPath: '/glovebox/a/slt_1/base',
        namespaces: ['user', 'pid', 'mount', 'ipc', 'uts', 'network', 'cgroup'].map((type) => ({ type })),
        uidMappings: mapping,
        gidMappings: mapping,
        resources: { devices: [{ allow: false, access: 'rwm' }, ...[3, 5, 7, 8, 9].map(device)] },
        rootfsPropagation: 'rslave',
        maskedPaths: [],
        readonlyPaths: [],
        seccomp: slotSeccomp('x64'),
      },
    })
  })

  it('is byte-identical for the same slot', () => {
    const bytes = () => JSON.stringify(toOciConfig(spec, ids, cgroup))
    expect(bytes()).toBe(bytes())
  })

  it('differs between slots only in ids and cgroup', () => {
    const other = toOciConfig(spec, { first: 0x7001_0000 }, { ociPath: '/glovebox/a/slt_2/base' })
    const otherMapping = [{ containerID: 0, hostID: 0x7001_0000, size: 65_536 }]
    const plain = toOciConfig(spec, ids, cgroup)
    const { linux } = plain
    expect(other).toEqual({
      ...plain,
      linux: { ...linux, cgroupsPath: '/glovebox/a/slt_2/base', uidMappings: otherMapping, gidMappings: otherMapping },
    })
  })

  it('has a dock when storage is configured, which only receives mounts from outside', () => {
    const plain = toOciConfig(spec, ids, cgroup)
    expect(toOciConfig({ ...spec, dockDir: '/state/docks/slt_1' }, ids, cgroup)).toEqual({
      ...plain,
      mounts: [
        ...plain.mounts,
        {
          destination: '/dock',
          type: 'bind',
          source: '/state/docks/slt_1',
          options: ['rbind', 'rslave', 'nosuid', 'nodev'],
        },
      ],
    })
  })

  it('never requests more open files than the host allows', () => {
    const small = toOciConfig({ ...spec, openFilesMax: 512 }, ids, cgroup)
    expect(small.process.rlimits).toEqual([{ type: 'RLIMIT_NOFILE', soft: 512, hard: 512 }])
  })

  it('filters the system calls of each known processor architecture, and rejects others', () => {
    expect(slotSeccomp('arm64').architectures).toEqual(['SCMP_ARCH_AARCH64'])
    expect(() => slotSeccomp('mips')).toThrow(/mips/)
  })

  it('rejects every socket family except UNIX, INET, INET6 and route netlink', () => {
    const refused = (family: number, protocol: number) =>
      slotSeccomp('x64').syscalls.some(
        ({ names, args = [] }) =>
          names.includes('socket') &&
          args.every(({ index, value, op }) => {
            const actual = index === 0 ? family : protocol
            return op === 'SCMP_CMP_EQ' ? actual === value : op === 'SCMP_CMP_GT' ? actual > value : actual !== value
          }),
      )
    const allowed = Array.from({ length: 64 }, (_, family) => family).filter((family) => !refused(family, 0))
    expect(allowed).toEqual([0, 1, 2, 10, 16]) // 0 is not a family: the kernel itself rejects it.
    expect(refused(16, 12)).toBe(true)
  })
})

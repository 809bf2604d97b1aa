import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { StartRefused } from '../../../src/base/errors.ts'
import { type Config, type ConfigSources, loadConfig } from '../../../src/config.ts'
import { variableOf } from '../../../src/setting.ts'
import { serverSettings, settings } from '../../../src/settings.ts'

const load = (sources: Partial<ConfigSources> = {}): Config =>
  loadConfig({ flags: {}, env: {}, file: undefined, ...sources })
const fromFile = (text: string): Config => load({ file: { path: '/etc/glovebox.yaml', text } })

function refusalOf(start: () => unknown): StartRefused {
  try {
    start()
  } catch (error) {
    if (error instanceof StartRefused) return error
    throw error
  }
  throw new Error('the start was not refused')
}

describe('the source of a setting', () => {
  const file = { path: '/etc/glovebox.yaml', text: 'port: 1003' }

  it('is the default when nothing else is set', () => {
    expect(load().port).toBe(5555)
    expect(load().sources.port).toBe('default')
  })

  it('is the file before the default', () => {
    expect(load({ file }).port).toBe(1003)
    expect(load({ file }).sources.port).toBe('file')
  })

  it('is the variable before the file', () => {
    expect(load({ file, env: { GLOVEBOX_PORT: '1002' } }).port).toBe(1002)
  })

  it('is the flag before all others', () => {
    const config = load({ file, env: { GLOVEBOX_PORT: '1002' }, flags: { port: '1001' } })
    expect(config.port).toBe(1001)
    expect(config.sources.port).toBe('flag')
  })

  it('is never a variable without the prefix', () => {
    expect(load({ env: { PORT: '1', HOME: '/x', HOST: '0.0.0.0' } })).toEqual(load())
  })
})

describe('a value', () => {
  it('for a size is bytes or a number with its unit', () => {
    const memory = (text: string) => load({ env: { GLOVEBOX_LIMIT_MEMORY: text } }).values.limit_memory
    expect(memory('67108864')).toBe(64 * 1024 * 1024)
    expect(memory('64MiB')).toBe(64 * 1024 * 1024)
    expect(memory('1.5GiB')).toBe(1.5 * 1024 ** 3)
    expect(memory('500MB')).toBe(500_000_000)
    expect(fromFile('limit_memory: 64MiB').values.limit_memory).toBe(64 * 1024 * 1024)
  })

  it('for a duration is seconds in the settings and milliseconds in the program', () => {
    expect(load({ flags: { slot_idle_s: '1.5' } }).slotIdleMs).toBe(1500)
  })

  it('for a list is comma-separated, or a list in the file', () => {
    expect(load({ env: { GLOVEBOX_ALLOWED_HOSTS: 'a.example, b.example' } }).allowedHosts).toEqual([
      'a.example',
      'b.example',
    ])
    expect(load({ env: { GLOVEBOX_ALLOWED_HOSTS: '' } }).allowedHosts).toEqual([])
    expect(fromFile('allowed_hosts: [a.example]').allowedHosts).toEqual(['a.example'])
  })

  it('for variables is repeated as a flag, JSON as a variable, a map in the file', () => {
    const env = { A: '1', B: 'x=y' }
    expect(load({ flags: { env: ['A=1', 'B=x=y'] } }).profiles.default?.env).toEqual(env)
    expect(load({ env: { GLOVEBOX_ENV: JSON.stringify(env) } }).profiles.default?.env).toEqual(env)
    expect(fromFile('env:\n  A: "1"\n  B: x=y').profiles.default?.env).toEqual(env)
  })
})

describe('the package cache', () => {
  const cache = {
    pip: 'https://user:token@index.example/simple',
    npm: 'http://registry.example:8080',
    apt: 'http://archive.example/debian',
  }
  const cachedOf = ({ profiles }: Config) =>
    Object.fromEntries(Object.entries(profiles).map(([n, p]) => [n, p.network?.cached]))

  it('is read from the file, the variable and a repeated flag', () => {
    expect(fromFile(`package_cache: ${JSON.stringify(cache)}`).packageCache).toEqual(cache)
    expect(load({ env: { GLOVEBOX_PACKAGE_CACHE: JSON.stringify(cache) } }).packageCache).toEqual(cache)
    const flags = { package_cache: [`pip=${cache.pip}`, `npm=${cache.npm}`, `apt=${cache.apt}`] }
    expect(load({ flags }).packageCache).toEqual(cache)
    for (const wrong of ['ftp://a.example', 'index.example/simple', 'https://a.example/?x=1'])
      expect(() => load({ flags: { package_cache: [`pip=${wrong}`] } })).toThrow(/the address of pip/)
    expect(() => load({ flags: { package_cache: ['gem=https://a.example'] } })).toThrow(
      /is not a map of pip, npm, apt to text/,
    )
  })

  it('is for profiles whose policy reaches it', () => {
    const profiles = `
profiles:
  packages: { network: packages }
  indexes: { network: packages, package_indexes: [a.example] }
  public: { network: public }
  named: { network: allow, network_allow: [a.example, packages.glovebox.internal] }
  below: { network: allow, network_allow: ["*.glovebox.internal:80"] }
  port: { network: allow, network_allow: ["packages.glovebox.internal:443"] }
`
    const all = ['pip', 'npm', 'apt']
    const reached = { packages: all, public: all, named: all, below: all }
    expect(cachedOf(fromFile(`package_cache: ${JSON.stringify(cache)}${profiles}`))).toEqual(reached)
    expect(cachedOf(fromFile(profiles))).toEqual({})
    expect(cachedOf(fromFile(`package_cache: { npm: "${cache.npm}" }${profiles}`)).public).toEqual(['npm'])
  })
})

describe('packages of a profile', () => {
  const packagesOf = ({ profiles }: Config) => profiles.default?.packages

  it('are read from the file, the variable and a repeated flag, and have the network of package managers or that of the profile', () => {
    const none = packagesOf(fromFile('packages: { npm: [b, "@a/a@1"], pip: ["numpy[all]>=2,<3"] }'))
    expect(none).toMatchObject({ pip: ['numpy[all]>=2,<3'], npm: ['@a/a@1', 'b'], network: { policy: 'packages' } })
    const variable = load({ env: { GLOVEBOX_PACKAGES: '{"pip":["numpy"]}', GLOVEBOX_NETWORK: 'public' } })
    expect(packagesOf(variable)).toMatchObject({ pip: ['numpy'], npm: [], network: { policy: 'public' } })
    const flag = load({ flags: { packages: ['pip=numpy>=2,<3', 'pip=pandas', 'npm=lodash'] } })
    expect(packagesOf(flag)).toMatchObject({ pip: ['numpy>=2,<3', 'pandas'], npm: ['lodash'] })
    const debian = packagesOf(fromFile('packages: { apt: [libqrencode4, g++, "jq=1.6-2.1+deb12u1", "vim=2:9.0~rc1"] }'))
    expect(debian).toMatchObject({
      apt: ['g++', 'jq=1.6-2.1+deb12u1', 'libqrencode4', 'vim=2:9.0~rc1'],
      pip: [],
      npm: [],
    })
    expect(packagesOf(load())).toBeUndefined()
    expect(packagesOf(fromFile('packages: { pip: [] }'))).toBeUndefined()
  })

  it('never contain an option, a path, an address, a file or several words', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1, maxLength: 40 }), fc.constantFrom('pip', 'npm', 'apt'), (word, manager) => {
        let accepted: unknown
        try {
          accepted = packagesOf(load({ env: { GLOVEBOX_PACKAGES: JSON.stringify({ [manager]: [word] }) } }))
        } catch (error) {
          if (!(error instanceof StartRefused)) throw error
        }
        if (accepted !== undefined) expect(word).toMatch(/^[@A-Za-z0-9~][^\s:;&|$`'"()\\]*$/)
      }),
    )
    for (const word of ['jq-', 'jq:i386', 'jq=', 'jq/stable', 'jq=*', 'jq=-1', '?essential', '~n.', 'Jq', 'j'])
      expect(refusalOf(() => load({ env: { GLOVEBOX_PACKAGES: JSON.stringify({ apt: [word] }) } })).message).toContain(
        'is not a Debian package',
      )
    for (const word of [
      '-r',
      '--pre',
      '.',
      './x',
      '/x',
      'x/y',
      'a b',
      'https://x/y',
      'git+ssh://x',
      'x;y',
      'x @ y',
      '~/x',
      'x.tgz',
      'x\ny',
      '',
    ]) {
      for (const manager of ['pip', 'npm']) {
        if (manager === 'pip' && word === 'x.tgz') continue
        const start = () => load({ env: { GLOVEBOX_PACKAGES: JSON.stringify({ [manager]: [word] }) } })
        expect(refusalOf(start).message).toContain(`in ${manager} is not a package of ${manager}`)
      }
    }
  })
})

describe('a setting under a former name', () => {
  it('works as a flag, a variable and in the file, with a note that names the new one', () => {
    const former: [Partial<ConfigSources>, RegExp][] = [
      [{ flags: { jails_ahead: false } }, /flag --jails-ahead is deprecated; use --prewarm-jails\./],
      [{ env: { GLOVEBOX_JAILS_AHEAD: 'false' } }, /GLOVEBOX_JAILS_AHEAD is deprecated; use GLOVEBOX_PREWARM_JAILS\./],
      [{ file: { path: '/f', text: 'jails_ahead: false' } }, /jails_ahead in the file \/f is deprecated; use prewarm_/],
    ]
    for (const [sources, note] of former) {
      const { prewarmJails, deprecations } = load(sources)
      expect([prewarmJails, deprecations]).toEqual([false, [expect.stringMatching(note)]])
    }
    expect(load().deprecations).toEqual([])
  })

  it('gives way to the current name in the same source, and to every stronger source', () => {
    expect(load({ flags: { jails_ahead: false, prewarm_jails: true } }).prewarmJails).toBe(true)
    expect(load({ env: { GLOVEBOX_JAILS_AHEAD: 'false' }, flags: { prewarm_jails: true } }).prewarmJails).toBe(true)
    expect(load({ env: { GLOVEBOX_PREWARM_JAILS: 'true' }, flags: { jails_ahead: false } }).prewarmJails).toBe(false)
  })

  it('is checked like the current one', () => {
    expect(refusalOf(() => fromFile('host_max_age_s: never')).message).toMatch(/host_max_age_s in the file.*a number/)
  })
})

describe('an invalid configuration is rejected with its source', () => {
  const cases: [title: string, start: () => unknown, reason: RegExp, remedy: RegExp][] = [
    ['an unknown flag', () => load({ flags: { prot: '1' } }), /--prot/, /--port/],
    ['an unknown variable', () => load({ env: { GLOVEBOX_PROT: '1' } }), /GLOVEBOX_PROT/, /GLOVEBOX_PORT/],
    ['an unknown variable like nothing', () => load({ env: { GLOVEBOX_XYZZY_PLUGH: '1' } }), /XYZZY/, /Remove it/],
    ['an unknown name in the file', () => fromFile('slots_mx: 1'), /slots_mx in the file \/etc/, /slots_max/],
    ['an inherited name in the file', () => fromFile('constructor: 1'), /constructor/, /./],
    ['an inherited name as a flag', () => load({ flags: { toString: 'x' } }), /toString/, /./],
    ['text for a number', () => load({ env: { GLOVEBOX_PORT: 'http' } }), /variable GLOVEBOX_PORT: "http"/, /./],
    ['nothing for a number', () => load({ env: { GLOVEBOX_PORT: '' } }), /GLOVEBOX_PORT/, /./],
    ['a fraction for a count', () => load({ flags: { port: '1.5' } }), /--port/, /./],
    ['a number out of range', () => fromFile('port: 65536'), /port in the file.*0 to 65535/, /./],
    ['text for a number in the file', () => fromFile('runs_max: [1]'), /runs_max/, /./],
    ['an ambiguous size', () => load({ flags: { limit_memory: '512M' } }), /--limit-memory.*512MiB/, /./],
    ['an unknown choice', () => load({ flags: { runtime: 'docker' } }), /auto, crun, runc, runsc/, /./],
    ['an unknown language', () => load({ flags: { languages: 'python,ruby' } }), /python, node, typescript, bash/, /./],
    ['a word for a switch', () => load({ env: { GLOVEBOX_DEV: 'yes' } }), /GLOVEBOX_DEV.*true or false/, /./],
    ['a relative directory', () => load({ flags: { home: 'data' } }), /--home.*absolute/, /./],
    ['a file that is no map', () => fromFile('- 1'), /must contain a map/, /./],
    ['a file that is no YAML', () => fromFile('port: ['), /not valid YAML/, /./],
    [
      'an address beyond loopback without keys',
      () => fromFile('{ dev: true, host: 0.0.0.0 }'),
      /0.0.0.0/,
      /keys create/,
    ],
    ['a name that only looks like loopback', () => fromFile('{ dev: true, host: 127.evil.example }'), /loopback/, /./],
    ...['null', '*', 'https://app.example/', 'https://app.example:443', 'https://App.example', 'app.example'].map(
      (origin): [string, () => unknown, RegExp, RegExp] => [
        `the origin ${origin}`,
        () => fromFile(`allowed_origins: ['${origin}']`),
        /allowed_origins.*scheme/,
        /./,
      ],
    ),
    ['a proxy that is no address', () => fromFile('trusted_proxies: [10.0.0.0/33]'), /trusted_proxies.*33/, /./],
    [
      'a network that webhooks may reach and that is none',
      () => fromFile('outbound_allow: [x/8]'),
      /outbound_.*x\/8/,
      /./,
    ],
    ['more slots ready than allowed', () => fromFile('slots_max: 1'), /slots_ready/, /./],
    ['ids past the last one', () => load({ flags: { id_base: '0x80000000' } }), /--id-base/, /./],
    ['too few ids for the slots', () => load({ flags: { id_base: '0x7fff0000' } }), /id_base.*slots_max/, /slots_max/],
    ['the front among the first ids of slots', () => fromFile('front_uid: 1879048193'), /front_uid/, /./],
    ['the front among the last ids of slots', () => fromFile('front_gid: 2147483647'), /front_gid/, /./],
    ['a default language that is not offered', () => fromFile('languages: [bash]'), /default: default_language/, /./],
    ['a default above the maximum', () => fromFile('timeout_max_s: 5'), /timeout_default_s/, /./],
    ['a soft limit above the hard one', () => fromFile('output_hard: 1KiB'), /output_soft/, /./],
    ['a setting of the machine in a profile', () => fromFile('profiles: { a: { port: 1 } }'), /profiles.a.port/, /./],
    ['a wrong value in a profile', () => fromFile('profiles: { a: { limit_pids: x } }'), /profiles.a.limit_pids/, /./],
    ['a profile with a bad name', () => fromFile('profiles: { "A b": {} }'), /profiles.A b/, /./],
    ['a profile that is no map', () => fromFile('profiles: { a: 1 }'), /profiles.a/, /./],
  ]
  for (const [title, start, reason, remedy] of cases) {
    it(`for ${title}`, () => {
      const refusal = refusalOf(start)
      expect(refusal.message).toMatch(reason)
      expect(refusal.remedy).toMatch(remedy)
    })
  }

  it('without printing a secret value', () => {
    const refusal = refusalOf(() => load({ env: { GLOVEBOX_ENV: '{"1A": "hunter2"}' } }))
    expect(refusal.message).toContain('GLOVEBOX_ENV')
    expect(refusal.message + refusal.remedy).not.toContain('hunter2')
  })

  it('and never causes any other error, for arbitrary input', () => {
    fc.assert(
      fc.property(fc.constantFrom(...Object.keys(settings)), fc.anything(), fc.string(), (name, value, text) => {
        for (const sources of [
          { flags: { [name]: value as string } },
          { env: { [variableOf(name)]: text } },
          { file: { path: '/f', text: `${name}: ${text}` } },
        ]) {
          try {
            load(sources)
          } catch (error) {
            expect(error).toBeInstanceOf(StartRefused)
          }
        }
      }),
      { numRuns: 300 },
    )
  })
})

describe('a profile', () => {
  it('named default comes from the settings', () => {
    const profile = load({ flags: { limit_pids: '7', default_language: 'bash' } }).profiles.default
    expect(profile).toMatchObject({ name: 'default', defaultLanguage: 'bash', limits: { pids: 7 } })
    expect(profile?.timeoutDefaultMs).toBe(30_000)
  })

  it('in the file inherits the settings and overrides what it names', () => {
    const { profiles } = fromFile('limit_pids: 9\nprofiles:\n  big:\n    limit_memory: 2GiB\n    reuse: never\n')
    expect(profiles.big).toMatchObject({ reuse: 'never', limits: { memoryBytes: 2 * 1024 ** 3, pids: 9 } })
    expect(profiles.default).toMatchObject({ reuse: 'key', limits: { memoryBytes: 512 * 1024 ** 2, pids: 9 } })
  })

  it('keeps its revision while its content is unchanged, and changes it with any change', () => {
    const revision = (text: string) => fromFile(text).profiles.default?.revision
    expect(revision('port: 1')).toBe(revision('port: 2'))
    expect(revision('env: { A: "1", B: "2" }')).toBe(revision('env: { B: "2", A: "1" }'))
    const revisions = ['env: { A: "1" }', 'env: { A: "2" }', 'limit_pids: 9', 'reuse: never', 'languages: [python]', '']
    expect(new Set(revisions.map(revision)).size).toBe(revisions.length)
  })
})

describe('the configuration', () => {
  it('has each server setting once, in camelCase, with durations in milliseconds and sizes in bytes', () => {
    const { profiles, sources, values, deprecations, ...own } = load()
    expect(Object.keys(own)).toHaveLength(Object.keys(serverSettings).length)
    const { slotIdleMs, runHistoryMs, storageReserveBytes, maxBodyBytes, drainMs, runsMax } = own
    expect([slotIdleMs, runHistoryMs, storageReserveBytes, maxBodyBytes, drainMs, runsMax]).toEqual([
      60_000, 2_592_000_000, 1_073_741_824, 4_194_304, 10_000, 16,
    ])
  })

  it('listens on an IPv6 address that is written in brackets', () => {
    expect(load({ flags: { host: '[::1]' } }).host).toBe('::1')
  })

  it('survives serialization as JSON', () => {
    const config = fromFile('env: { A: "1" }\nprofiles: { a: {} }')
    expect(JSON.parse(JSON.stringify(config))).toEqual(config)
  })
})

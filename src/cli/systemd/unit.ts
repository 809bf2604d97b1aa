/** The unit of the server for systemd: https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html */
import { defaultHome, defaultStateDir } from '../../base/instance.ts'

/** What the unit depends on. */
export interface UnitOptions {
  /** Absolute path of the command `glovebox`. */
  program: string
  /** The configuration file that the server starts with. */
  config: string
  home: string
  stateDir: string
  /** How long the server waits for runs when it stops, in milliseconds. */
  drainMs: number
  /** The capabilities of the runner, without `CAP_`, in lower case. */
  capabilities: readonly string[]
}

/** Time that the parts of a stopping server may take after its runs have ended, in seconds. */
const endingS = 45

/**
 * System calls that neither the server nor a run can use. Others stay: a filter of the service also applies to the
 * programs in sandboxes, which may set setuid bits of their own files, choose a personality, or create namespaces.
 */
const deniedCalls = ['@clock', '@cpu-emulation', '@module', '@obsolete', '@raw-io', '@reboot', '@swap']

/** Returns the text of the unit. @throws Error for a path that a unit cannot contain. */
export function unitText({ program, config, home, stateDir, drainMs, capabilities }: UnitOptions): string {
  const isBelow = (...directories: string[]) => directories.some((directory) => program.startsWith(`${directory}/`))
  return `[Unit]
Description=Glovebox, sandboxes for AI agents
After=network-online.target nss-lookup.target
Wants=network-online.target
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
ExecStart=${inUnit(program)} serve --config ${inUnit(config)}
Restart=on-failure
RestartSec=2
# Wrong arguments, or a machine or configuration with which the server cannot start: see the log.
RestartPreventExitStatus=64 78
TimeoutStartSec=600
TimeoutStopSec=${Math.ceil(drainMs / 1000) + endingS}
WatchdogSec=60
# The server ends its processes itself, in order.
KillMode=mixed
LimitNOFILE=1048576
TasksMax=infinity
UMask=0022

# The server creates namespaces, mounts, loop devices and cgroups. What it does not need:
CapabilityBoundingSet=${capabilities.map((name) => `CAP_${name.toUpperCase()}`).join(' ')}
NoNewPrivileges=yes
ProtectSystem=strict
${directoriesText(home, stateDir)}
ProtectHome=${isBelow('/home', '/root', '/run/user') ? 'read-only' : 'yes'}
PrivateTmp=${isBelow('/tmp', '/var/tmp') ? 'no' : 'yes'}
ProtectKernelModules=yes
KeyringMode=private
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=~${deniedCalls.join(' ')}
SystemCallErrorNumber=EPERM
# Not set, since slots would not start: PrivateDevices and ProtectClock (loop devices), ProtectControlGroups,
# ProtectHostname (a slot sets its own), RestrictNamespaces, PrivateUsers, ProtectKernelTunables, ProtectKernelLogs and
# ProtectProc (a slot mounts a /proc of its own, which the kernel allows only if nothing covers parts of that of the
# service), and MemoryDenyWriteExecute (Node.js compiles code).

[Install]
WantedBy=multi-user.target
`
}

/** The directories that the service can write to. systemd creates the default ones. */
function directoriesText(home: string, stateDir: string): string {
  const others = [home, stateDir].filter((path) => path !== defaultHome && path !== defaultStateDir)
  return [
    ...(home === defaultHome ? ['StateDirectory=glovebox', 'StateDirectoryMode=0711'] : []),
    // Every instance of the machine registers its ranges of user IDs there.
    ...['RuntimeDirectory=glovebox', 'RuntimeDirectoryMode=0711', 'RuntimeDirectoryPreserve=yes'],
    ...(others.length > 0 ? [`ReadWritePaths=${others.map(inUnit).join(' ')}`] : []),
  ].join('\n')
}

/** `%` starts a specifier, `$` a variable; spaces and quotes would need rules that differ between directives. */
function inUnit(path: string): string {
  if (/[\s"'\\$;]/.test(path)) throw new Error(`a unit cannot contain the path ${JSON.stringify(path)}`)
  return path.replaceAll('%', '%%')
}

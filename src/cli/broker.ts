import { type Command, Option } from 'commander'
import type { SharedNetworkLimits } from '../base/network.ts'
import { Broker } from '../egress/broker.ts'
import { certificatesIn, machineRoots } from '../egress/machine-roots.ts'
import type { ToBroker } from '../egress/protocol.ts'
import { createLog, type Log, type LogFormat, type LogLevel, logFormats, logLevels } from '../observe/log.ts'
import type { Cli } from './command.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'

interface BrokerOptions {
  logLevel: LogLevel
  logFormat: LogFormat
  caFile: string
  limits: string
}

/** Started by the runner, which passes the sockets of jails. */
export function register(program: Command, { io, exit }: Cli): void {
  program
    .command('broker', { hidden: true })
    .addOption(new Option('--log-level <level>').choices(logLevels).default('info'))
    .addOption(new Option('--log-format <format>').choices(logFormats).default('auto'))
    .addOption(new Option('--ca-file <file>').default(''))
    .addOption(new Option('--limits <json>').default(''))
    .action(async (options: BrokerOptions) => exit(await broker(options, io)))
}

function rootsWith(caFile: string, log: Log): readonly string[] {
  if (caFile === '') return machineRoots()
  const further = certificatesIn(caFile)
  if (further === undefined)
    log.error({ file: caFile }, 'egress_ca_file contains no certificate that egress_uid can read')
  return [...machineRoots(), ...(further ?? [])]
}

/** Only tests start a broker without limits. */
const limitsIn = (json: string): SharedNetworkLimits =>
  json === ''
    ? { connectionsPerKey: 65_536, connectionsPerOrg: 65_536, bytesPerSecondPerKey: 0, bytesPerSecondPerOrg: 0 }
    : (JSON.parse(json) as SharedNetworkLimits)

/** The broker process: serves until its runner is gone. A signal to all processes does not end it before its runs. */
async function broker(options: BrokerOptions, io: ProcessIo): Promise<number> {
  const { parent } = io
  if (parent === undefined) {
    io.stderr.write('glovebox: this command is started by the runner\n')
    return exitCodes.usage
  }
  io.onRepeatedSignal(() => undefined)
  const log = createLog({
    level: options.logLevel,
    format: options.logFormat,
    destination: io.stderr,
    bindings: { process: 'broker' },
  })
  const served = new Broker(parent, log, rootsWith(options.caFile, log), limitsIn(options.limits))
  parent.receive((message, handle) => {
    served.receive(message as ToBroker, handle).catch((error: unknown) => log.error({ err: error }, 'jail failed'))
  })
  parent.send({ type: 'ready' })
  await parent.gone
  return exitCodes.ok
}

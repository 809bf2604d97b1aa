/** `glovebox secrets`: the master key. */
import type { Command } from 'commander'
import { InstanceLock } from '../../base/instance-lock.ts'
import { masterKeySource, replaceMasterKey } from '../../core/access/master-key.ts'
import { type Cli, withExamples } from '../command.ts'
import { printJson } from '../output.ts'
import { exitCodes } from '../process-io.ts'
import { configOf } from '../setting-options.ts'
import { adminCommand, withStore } from './context.ts'

export function register(program: Command, cli: Cli): void {
  const secrets = program.command('secrets').description('Manage the master key that encrypts stored secrets.')
  withExamples(
    adminCommand(
      secrets,
      'rotate',
      'Replace the master key and encrypt all secrets again. The server must be stopped.',
    ),
    'glovebox secrets rotate',
  ).action((_: object, command: Command) => rotate(command, cli))
}

async function rotate(command: Command, { io, exit }: Cli): Promise<void> {
  const config = configOf(command, io)
  const lock = await InstanceLock.acquire(config.home, 'front', true)
  try {
    const code = await withStore(config, io, async (store, instance) => {
      await replaceMasterKey(store, masterKeySource(config, instance.frontHome))
      if (command.opts<{ json?: boolean }>().json) printJson({ rotated: true }, io)
      else io.stdout.write('Encrypted all secrets with a new master key. Back it up separately from the database.\n')
      return exitCodes.ok
    })
    exit(code ?? exitCodes.ok)
  } finally {
    lock.release()
  }
}

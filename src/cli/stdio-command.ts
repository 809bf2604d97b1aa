import type { Command } from 'commander'
import { withServer } from './api-client.ts'
import { type Cli, withExamples } from './command.ts'
import { type StdioRequest, stdio } from './stdio.ts'

/** `glovebox stdio`. */
export function register(program: Command, { io, exit }: Cli): void {
  withExamples(
    withServer(
      program
        .command('stdio')
        .description('Serve MCP on standard input and output. Without --url, a local server is used, or started.'),
    ).option('--toolsets <names>', 'comma-separated groups of tools to show'),
    'glovebox stdio',
    'glovebox stdio --url https://code.example --key-file ~/.glovebox-key --toolsets execute,files',
  ).action(async (request: StdioRequest) => exit(await stdio(request, io)))
}

import { describe, expect, it } from 'vitest'
import { asksForItsFile } from '../../../src/base/program-copy.ts'
import type { Language } from '../../../src/base/run.ts'

const asks = (language: Language, code: string) => asksForItsFile(language, Buffer.from(code))

describe('a program', () => {
  it.each<[Language, string]>([
    ['python', 'here = os.path.dirname(os.path.abspath(__file__))'],
    ['python', 'ü = Path(__file__).parent'],
    ['python', 'here = os.path.dirname(sys.argv[0])'],
    ['node', 'path.dirname(__filename)'],
    ['node', 'new URL("a", import.meta.url)'],
    ['node', 'if (process.argv[1] === own) main()'],
    ['typescript', 'const here: string = import.meta.dirname'],
    ['bash', 'cd "$(dirname "$0")"'],
    ['bash', `here=\${BASH_SOURCE[0]%/*}`],
    ['bash', `echo "\${0##*/}: usage"`],
    ['bash', `awk '{print $0}' "$(dirname "$0")/data"`],
  ])('of %s asks for its file: %s', (language, code) => expect(asks(language, code)).toBe(true))

  it.each<[Language, string]>([
    ['python', 'print(file)'],
    ['python', 'print(sys.argv[1:], sys.argv)'],
    ['node', 'const file = require("./a"); console.log(process.argv.slice(2), argv[10])'],
    ['typescript', 'const meta: { url: string } = x'],
    ['bash', `ps | awk '{print $0}'`],
    ['bash', 'echo $01 $1'],
  ])('of %s does not ask for its file: %s', (language, code) => expect(asks(language, code)).toBe(false))
})

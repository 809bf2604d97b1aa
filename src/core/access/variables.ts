import { Refusal } from '../../base/errors.ts'

const variablesLimit = 64
const variableNameLimit = 128
const variableValueLimitBytes = 32 * 1024
const variablesLimitBytes = 128 * 1024

const variableName = /^[A-Z][A-Z0-9_]*$/

/**
 * Names of variables that a call may not set: those that the sandbox sets itself, such as HOME, and those that make a
 * loader or an interpreter run other code first, since one process can serve several runs. Others are allowed, such as
 * LANG, LC_ALL and TZ (default: UTF-8, UTC), NODE_ENV and PYTHONUNBUFFERED.
 */
export const reservedVariables: ReadonlySet<string> = new Set([
  'PATH',
  'HOME',
  'USER',
  'LOGNAME',
  'SHELL',
  'TMPDIR',
  'PWD',
  'IFS',
  'ENV',
  'BASH_ENV',
  'BASHOPTS',
  'SHELLOPTS',
  'PS4',
  'GCONV_PATH',
  'GLIBC_TUNABLES',
  'NODE_OPTIONS',
  'NODE_CHANNEL_FD',
  'PYTHONHOME',
  'PYTHONSTARTUP',
  'PYTHONINSPECT',
])

export const reservedPrefixes = ['LD_', 'BAPONI_', 'GLOVEBOX_'] as const

/**
 * Checks the variables of one call.
 * @returns the same variables, typed as strings.
 * @throws Refusal `invalid_argument` with the name of the variable.
 */
export function checkVariables(asked: Readonly<Record<string, unknown>>): Record<string, string> {
  const entries = Object.entries(asked)
  if (entries.length > variablesLimit) {
    throw invalid('env_vars', `contains ${entries.length} variables; the maximum is ${variablesLimit}`)
  }
  const checked: [string, string][] = []
  let totalBytes = 0
  for (const [name, value] of entries) {
    checkName(name)
    const text = checkValue(name, value)
    totalBytes += Buffer.byteLength(name) + Buffer.byteLength(text)
    checked.push([name, text])
  }
  if (totalBytes > variablesLimitBytes) {
    throw invalid('env_vars', `is ${totalBytes} bytes in total; the maximum is ${variablesLimitBytes}`)
  }
  return Object.fromEntries(checked)
}

function checkName(name: string): void {
  if (name.length > variableNameLimit) {
    throw invalid('env_vars', `has a name of ${name.length} characters; the maximum is ${variableNameLimit}`)
  }
  const shown = `env_vars[${JSON.stringify(name)}]`
  if (!variableName.test(name)) {
    throw invalid(shown, 'is not a valid name: use uppercase letters, digits and underscores, starting with a letter')
  }
  if (reservedVariables.has(name) || reservedPrefixes.some((prefix) => name.startsWith(prefix))) {
    throw invalid(shown, 'is reserved by the sandbox and cannot be set')
  }
}

function checkValue(name: string, value: unknown): string {
  const field = `env_vars.${name}`
  if (typeof value !== 'string')
    throw invalid(field, `must be a string; it is ${value === null ? 'null' : typeof value}`)
  if (value.includes('\0')) throw invalid(field, 'holds a NUL character, which no environment variable can carry')
  if (!value.isWellFormed()) throw invalid(field, 'holds a lone surrogate, which is not valid Unicode')
  const bytes = Buffer.byteLength(value)
  if (bytes > variableValueLimitBytes) {
    throw invalid(field, `is ${bytes} bytes; the maximum is ${variableValueLimitBytes}`)
  }
  return value
}

const invalid = (field: string, problem: string): Refusal => new Refusal('invalid_argument', { field, problem })

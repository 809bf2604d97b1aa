import { extname, join } from 'node:path'

/** The file that Node.js starts, below the root of the program: TypeScript in the source tree, JavaScript in packages. */
export const mainFile = join('src', `main${extname(import.meta.filename)}`)

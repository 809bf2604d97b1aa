import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Package, Software } from '../../base/software.ts'

/** Packages that code of models uses most, by importance. */
const wellKnownPackages = [
  ...['numpy', 'pandas', 'matplotlib', 'scipy', 'scikit-learn', 'sympy', 'requests', 'pillow', 'seaborn', 'plotly'],
  ...[
    'openpyxl',
    'lxml',
    'beautifulsoup4',
    'pyyaml',
    'statsmodels',
    'networkx',
    'polars',
    'pyarrow',
    'duckdb',
    'httpx',
  ],
  ...[
    'aiohttp',
    'sqlalchemy',
    'xlsxwriter',
    'python-docx',
    'python-pptx',
    'pypdf',
    'pdfplumber',
    'pymupdf',
    'reportlab',
  ],
  ...['opencv-python', 'scikit-image', 'imageio', 'torch', 'tensorflow', 'transformers', 'xgboost', 'lightgbm', 'nltk'],
  ...['spacy', 'jinja2', 'flask', 'fastapi', 'pydantic', 'cryptography', 'pytest', 'tabulate', 'tqdm', 'rich', 'click'],
  ...['jsonschema', 'xmltodict', 'toml', 'python-dateutil', 'pytz', 'joblib', 'numba', 'cython', 'mpmath', 'pip'],
]
/** Models read the list with every tool description, so it is short. */
const packagesMax = 40

const wellKnownPrograms = [
  ...[
    'git',
    'curl',
    'wget',
    'jq',
    'gcc',
    'g++',
    'make',
    'cmake',
    'ffmpeg',
    'convert',
    'pandoc',
    'sqlite3',
    'zip',
    'unzip',
  ],
  ...[
    '7z',
    'rg',
    'go',
    'rustc',
    'java',
    'ruby',
    'perl',
    'php',
    'gs',
    'pdftotext',
    'tesseract',
    'dot',
    'gnuplot',
    'npm',
    'tsc',
  ],
]

/** Directories of an image, by their path below its root. */
export interface ImageDirectories {
  /** Names in a directory; none if it does not exist. */
  list(path: string): readonly string[]
}

/** Returns the directories of an image that is trusted: the /usr of the machine. */
export const directoriesBelow = (root: string): ImageDirectories => ({
  list: (path) => (existsSync(join(root, path)) ? readdirSync(join(root, path)).toSorted() : []),
})

/** Reads which packages and programs an image has: by default that of the machine. */
export function readPackages(directories = directoriesBelow('/')): Omit<Software, 'interpreters'> {
  const packages = pythonPackages(directories)
  const installed = new Set(['usr/local/bin', 'usr/bin', 'bin'].flatMap((path) => directories.list(path)))
  const known = wellKnownPackages.flatMap((name) => packages.get(name) ?? [])
  return {
    pythonPackages: known.slice(0, packagesMax),
    pythonPackagesTotal: packages.size,
    programs: wellKnownPrograms.filter((name) => installed.has(name)),
  }
}

/** Returns the packages of the interpreter of the image, by normalized name. */
function pythonPackages(directories: ImageDirectories): Map<string, Package> {
  const found = new Map<string, Package>()
  for (const directory of packageDirectories(directories)) {
    for (const entry of directories.list(directory)) {
      const [, name, version] = /^([A-Za-z0-9._]+?)-([0-9][^-]*)(?:-py[0-9.]+)?\.(?:dist|egg)-info$/.exec(entry) ?? []
      if (name === undefined || version === undefined) continue
      // https://packaging.python.org/en/latest/specifications/name-normalization/
      const normalized = name.toLowerCase().replaceAll(/[-_.]+/g, '-')
      if (!found.has(normalized)) found.set(normalized, { name: normalized, version: version.slice(0, 32) })
    }
  }
  return found
}

/** Directories of packages, in the order in which the interpreter searches them. */
const packageDirectories = ({ list }: ImageDirectories): string[] => [
  ...list('usr/local/lib')
    .filter((name) => /^python3\.\d+$/.test(name))
    // Debian's interpreter has the first, any other one the second.
    .flatMap((name) => [`usr/local/lib/${name}/dist-packages`, `usr/local/lib/${name}/site-packages`]),
  'usr/lib/python3/dist-packages',
]

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

/** Reads which packages and programs the image has. The default image has the /usr of the machine. */
export function readPackages(usr = '/usr'): Omit<Software, 'interpreters'> {
  const packages = pythonPackages(usr)
  const known = wellKnownPackages.flatMap((name) => packages.get(name) ?? [])
  return {
    pythonPackages: known.slice(0, packagesMax),
    pythonPackagesTotal: packages.size,
    programs: wellKnownPrograms.filter((name) => existsSync(join(usr, 'bin', name))),
  }
}

/** Returns the packages of the interpreter of the image, by normalized name. */
function pythonPackages(usr: string): Map<string, Package> {
  const found = new Map<string, Package>()
  for (const directory of packageDirectories(usr)) {
    for (const entry of list(directory)) {
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
const packageDirectories = (usr: string): string[] => [
  ...list(join(usr, 'local/lib'))
    .filter((name) => /^python3\.\d+$/.test(name))
    .map((name) => join(usr, 'local/lib', name, 'dist-packages')),
  join(usr, 'lib/python3/dist-packages'),
]

const list = (directory: string): string[] => (existsSync(directory) ? readdirSync(directory).toSorted() : [])

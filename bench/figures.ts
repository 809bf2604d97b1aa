/** Statistics of a list of measurements. */

export function median(values: readonly number[]): number {
  return quantile(values, 0.5)
}

/**
 * Returns the value below which a share of the measurements lies, by the nearest rank.
 * @param share from 0 to 1.
 * @returns NaN for no measurements, which every table shows as such.
 */
export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  if (sorted.length === 0) return Number.NaN
  if (share === 0.5 && sorted.length % 2 === 0) {
    return (sorted[sorted.length / 2 - 1]! + sorted[sorted.length / 2]!) / 2
  }
  return sorted[Math.max(Math.ceil(share * sorted.length) - 1, 0)]!
}

/** Returns the quartiles: half of the measurements lie between these two. */
export const quartiles = (values: readonly number[]): [low: number, high: number] => [
  quantile(values, 0.25),
  quantile(values, 0.75),
]

/** Formats a number with about three significant digits. */
export function shown(value: number): string {
  if (!Number.isFinite(value)) return '–'
  const size = Math.abs(value)
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)
}

export const mebibytes = (bytes: number): string => shown(bytes / 2 ** 20)

/** Formats a Markdown table, numbers aligned right. */
export function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [line(header), line(header.map((_, column) => (column === 0 ? '---' : '--:'))), ...rows.map(line)].join('\n')
}

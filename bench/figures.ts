/** What a list of measurements comes to. */

export function median(values: readonly number[]): number {
  return quantile(values, 0.5)
}

/**
 * The value below which a share of the measurements lies, by the nearest rank.
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

/** Spread that a figure leaves open: half of the measurements lie between these two. */
export const quartiles = (values: readonly number[]): [low: number, high: number] => [
  quantile(values, 0.25),
  quantile(values, 0.75),
]

/** To about three digits, as tables show it. */
export function shown(value: number): string {
  if (!Number.isFinite(value)) return '–'
  const size = Math.abs(value)
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)
}

export const mebibytes = (bytes: number): string => shown(bytes / 2 ** 20)

/** A Markdown table, numbers to the right. */
export function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [line(header), line(header.map((_, column) => (column === 0 ? '---' : '--:'))), ...rows.map(line)].join('\n')
}

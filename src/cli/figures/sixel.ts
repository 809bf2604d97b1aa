/** Images for terminals that show sixel graphics: https://vt100.net/docs/vt3xx-gp/chapter14.html */
import type { Pixels } from './png.ts'

/** Wider images are scaled down: most terminals show this many pixels side by side. */
const maxWidth = 800
/** Steps of red, green and blue each. A terminal has 256 color registers, and 6 × 6 × 6 fit. */
const steps = 6
const bandHeight = 6

/** Encodes an image with a fixed palette of 216 colors. */
export function toSixel(image: Pixels): string {
  const scale = Math.max(1, Math.ceil(image.width / maxWidth))
  const width = Math.floor(image.width / scale)
  const height = Math.max(1, Math.floor(image.height / scale))
  const colors = toColors(image, { width, height, scale })
  const bands: string[] = []
  for (let top = 0; top < height; top += bandHeight) bands.push(toBand(colors, width, height, top))
  return `\x1bP0;1;0q"1;1;${width};${height}${palette(new Set(colors))}${bands.join('-')}\x1b\\`
}

/** The color of each pixel of the scaled image. */
function toColors(image: Pixels, { width, height, scale }: { width: number; height: number; scale: number }) {
  const colors = new Uint8Array(width * height)
  const step = (value: number) => Math.round((value * (steps - 1)) / 255)
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = (y * scale * image.width + x * scale) * 3
      const [red, green, blue] = [image.rgb[at]!, image.rgb[at + 1]!, image.rgb[at + 2]!]
      colors[y * width + x] = (step(red) * steps + step(green)) * steps + step(blue)
    }
  }
  return colors
}

/** Defines the colors in use, with red, green and blue in percent. */
function palette(used: ReadonlySet<number>): string {
  const percent = (step: number) => (step * 100) / (steps - 1)
  return [...used]
    .map((color) => {
      const [red, green, blue] = [Math.floor(color / steps ** 2), Math.floor(color / steps) % steps, color % steps]
      return `#${color};2;${percent(red)};${percent(green)};${percent(blue)}`
    })
    .join('')
}

/** Encodes six rows: one layer for each of their colors, with a character for each column. */
function toBand(colors: Uint8Array, width: number, height: number, top: number): string {
  const layers = new Map<number, Uint8Array>()
  for (let row = 0; row < Math.min(bandHeight, height - top); row++) {
    for (let x = 0; x < width; x++) {
      const color = colors[(top + row) * width + x]!
      const layer = layers.get(color) ?? new Uint8Array(width)
      layers.set(color, layer)
      layer[x] = layer[x]! | (1 << row)
    }
  }
  return [...layers].map(([color, columns]) => `#${color}${repeated(columns)}`).join('$')
}

/** `!N` repeats the character that follows. */
function repeated(columns: Uint8Array): string {
  let text = ''
  for (let at = 0; at < columns.length; ) {
    let end = at + 1
    while (end < columns.length && columns[end] === columns[at]) end++
    const character = String.fromCharCode(63 + columns[at]!)
    text += end - at > 3 ? `!${end - at}${character}` : character.repeat(end - at)
    at = end
  }
  return text
}

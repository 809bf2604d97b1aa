/** Records of payloads for the guest: u8 tag, u32 length, value. */

/** One record of a payload. */
export function record(tagOf: number, value: Buffer): Buffer {
  const head = Buffer.allocUnsafe(5)
  head.writeUInt8(tagOf, 0)
  head.writeUInt32LE(value.length, 1)
  return Buffer.concat([head, value])
}

/** @throws RangeError when it holds a NUL. */
export function text(tagOf: number, value: string): Buffer {
  if (value.includes('\0')) throw new RangeError('a word for the guest holds a NUL')
  return record(tagOf, Buffer.from(value))
}

export function u64(tagOf: number, value: number): Buffer {
  const bytes = Buffer.allocUnsafe(8)
  bytes.writeBigUInt64LE(BigInt(value), 0)
  return record(tagOf, bytes)
}

export function u32(tagOf: number, value: number): Buffer {
  const bytes = Buffer.allocUnsafe(4)
  bytes.writeUInt32LE(value, 0)
  return record(tagOf, bytes)
}

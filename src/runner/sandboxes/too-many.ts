/** Details of the refusal for one thing too many of a sandbox. */
export const tooMany = (limit: string, amount: number) => ({ owner: 'sandbox', limit, amount, retryAfterSeconds: 1 })

/** A request for a package that is not answered with it. */
export class PackageProblem extends Error {
  readonly status: number

  /** @param status of the answer. @param message for the program; it contains nothing of an upstream but its host. */
  constructor(status: 404 | 405 | 502 | 503 | 507, message: string) {
    super(message)
    this.name = 'PackageProblem'
    this.status = status
  }
}

/** Where a signed link leads. @param baseUrl where clients reach this server, without a slash at its end. */
export const blobUrl = (baseUrl: string, token: string): string => `${baseUrl}/v1/blobs/${token}`

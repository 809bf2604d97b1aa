/** Returns the name and version that this server reports in every protocol version. */
export const serverInfo = (version: string) => ({ name: 'glovebox', title: 'Glovebox', version })

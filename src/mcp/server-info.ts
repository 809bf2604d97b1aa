/** What this server calls itself in every version of the protocol. */
export const serverInfo = (version: string) => ({ name: 'glovebox', title: 'Glovebox', version })

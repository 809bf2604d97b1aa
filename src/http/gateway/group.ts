export const gatewayGroup = { name: 'Gateway', description: 'Other MCP servers, reached with the key of this one.' }

/** Comments keep the connection open while an upstream is silent. */
export const keepAliveComment = ': keep-alive\n\n'

import { setTimeout as sleep } from 'node:timers/promises'
import { Refusal } from '../../src/base/errors.ts'
import type { ChangeFeed } from '../../src/mcp/change-feed.ts'
import type { Tool } from '../../src/tools/tool.ts'
import { FixtureFailure, fixtureTool, form, png, text, wav } from './fixture-tool.ts'

const mixedResource = {
  uri: 'test://mixed-content-resource',
  mimeType: 'application/json',
  text: '{"test":"data","value":123}',
}

const embedded = {
  uri: 'test://embedded-resource',
  mimeType: 'text/plain',
  text: 'This is an embedded resource content.',
}

const schema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: {
      $anchor: 'addressDef',
      type: 'object',
      properties: { street: { type: 'string' }, city: { type: 'string' } },
    },
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  // biome-ignore lint/suspicious/noThenProperty: `then` is a keyword of JSON Schema
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
}

/** Tools that return each kind of content, report progress, or change the tool list. */
export const contentTools = (changes: ChangeFeed): readonly Tool[] => [
  fixtureTool('test_simple_text', 'Text', () => [text('This is a simple text response for testing.')]),
  fixtureTool('test_image_content', 'Image', () => [{ type: 'image', data: png, mimeType: 'image/png' }]),
  fixtureTool('test_audio_content', 'Audio', () => [{ type: 'audio', data: wav, mimeType: 'audio/wav' }]),
  fixtureTool('test_embedded_resource', 'Resource', () => [{ type: 'resource', resource: embedded }]),
  fixtureTool('test_multiple_content_types', 'Several', () => [
    text('Multiple content types test:'),
    { type: 'image', data: png, mimeType: 'image/png' },
    { type: 'resource', resource: mixedResource },
  ]),
  fixtureTool('test_error_handling', 'Fails', () => {
    throw new FixtureFailure('This tool intentionally returns an error for testing')
  }),
  fixtureTool('test_tool_with_logging', 'Logs', async (_given, { log }) => {
    await log('info', 'Tool execution started')
    await sleep(50)
    await log('info', 'Tool processing data')
    await sleep(50)
    await log('info', 'Tool execution completed')
    return [text('Tool with logging executed successfully')]
  }),
  fixtureTool('test_logging_tool', 'Logs', async (_given, { log }) => {
    await log('info', 'logged')
    return [text('logged')]
  }),
  fixtureTool('test_tool_with_progress', 'Goes on', async (_given, { progress }) => {
    for (const done of [0, 50, 100]) {
      await progress?.({ message: `Completed step ${done} of 100`, done, total: 100 })
      await sleep(50)
    }
    return [text('done')]
  }),
  fixtureTool('test_missing_capability', 'Needs sampling', (_given, { client }) => {
    if (!client.has('sampling')) throw new Refusal('capability_missing', { capability: 'sampling' })
    return [text('sampling is declared')]
  }),
  fixtureTool('test_streaming_elicitation', 'Asks', async (_given, { ask }) => {
    await ask({ name: form('What is your name?', { name: { type: 'string' } }) })
    return [text('asked')]
  }),
  fixtureTool('test_reconnection', 'Waits', async () => {
    await sleep(100)
    return [text('Reconnection test completed successfully.')]
  }),
  fixtureTool('test_trigger_tool_change', 'Changes', () => {
    changes.publish({ kind: 'tools' })
    return [text('changed')]
  }),
  fixtureTool('test_trigger_prompt_change', 'Changes', () => {
    changes.publish({ kind: 'prompts' })
    return [text('changed')]
  }),
  fixtureTool('test_x_mcp_header', 'Mirrors', (given) => [text(JSON.stringify(given))], {
    inputSchema: { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } } },
    mirrored: [{ path: ['region'], header: 'region' }],
  }),
  fixtureTool('json_schema_2020_12_tool', 'Schema', (given) => [text(JSON.stringify(given))], { inputSchema: schema }),
]

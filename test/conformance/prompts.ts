import type { Prompt } from '../../src/tools/prompt.ts'
import { form, png, text } from './fixture-tool.ts'

const listing = (name: string, ...given: readonly string[]) => ({
  name,
  title: name,
  description: name,
  arguments: given.map((argument) => ({ name: argument, description: argument, required: true })),
})

export const prompts: readonly Prompt[] = [
  {
    listing: listing('test_simple_prompt'),
    get: async () => [{ role: 'user', content: text('This is a simple prompt for testing.') }],
  },
  {
    listing: listing('test_prompt_with_arguments', 'arg1', 'arg2'),
    get: async (_caller, { arg1, arg2 }) => [
      { role: 'user', content: text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`) },
    ],
    complete: async (_caller, _argument, typed) => ['paris', 'park', 'party'].filter((word) => word.startsWith(typed)),
  },
  {
    listing: listing('test_prompt_with_embedded_resource', 'resourceUri'),
    get: async (_caller, { resourceUri = '' }) => [
      {
        role: 'user',
        content: {
          type: 'resource',
          resource: { uri: resourceUri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' },
        },
      },
      { role: 'user', content: text('Please process the embedded resource above.') },
    ],
  },
  {
    listing: listing('test_prompt_with_image'),
    get: async () => [
      { role: 'user', content: { type: 'image', data: png, mimeType: 'image/png' } },
      { role: 'user', content: text('Please analyze the image above.') },
    ],
  },
  {
    listing: listing('test_input_required_result_prompt'),
    get: async (_caller, _given, { ask }) => {
      const answers = await ask({
        user_context: form('What context should the prompt use?', { context: { type: 'string' } }),
      })
      return [{ role: 'user', content: text(`Context: ${JSON.stringify(answers.user_context)}`) }]
    },
  },
]

import { Refusal } from '../base/errors.ts'
import type { InputRequest } from '../tools/request-context.ts'
import { isObject, own, type Params } from './json-rpc/message.ts'

/**
 * Checks what a client answered to a request of the server. BOUNDARY: tools rely on the shape of the result.
 * @throws Refusal `input_invalid`.
 */
export function checkInputResponse(name: string, { method }: InputRequest, response: unknown): Params {
  const problem = isObject(response) ? problemOf(method, response) : 'must be an object'
  if (problem === undefined) return response as Params
  throw new Refusal('input_invalid', { name: name.slice(0, 128), problem })
}

function problemOf(method: InputRequest['method'], response: Params): string | undefined {
  switch (method) {
    case 'elicitation/create': {
      const action = own(response, 'action')
      if (action !== 'accept' && action !== 'decline' && action !== 'cancel') {
        return 'must have an action: accept, decline or cancel'
      }
      const content = own(response, 'content')
      return content === undefined || isObject(content) ? undefined : 'must have an object as its content'
    }
    case 'sampling/createMessage':
      return own(response, 'content') === undefined ? 'must have content' : undefined
    case 'roots/list':
      return Array.isArray(own(response, 'roots')) ? undefined : 'must have a list of roots'
  }
}

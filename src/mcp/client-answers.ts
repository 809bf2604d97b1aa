import { Refusal } from '../base/errors.ts'
import type { InputRequest } from '../tools/request-context.ts'
import { isObject, own, type Params } from './json-rpc.ts'

/** BOUNDARY: an answer comes from a client; tools rely on its shape. @throws Refusal `input_invalid`. */
export function checkAnswer(name: string, { method }: InputRequest, answer: unknown): Params {
  const problem = isObject(answer) ? problemOf(method, answer) : 'must be an object'
  if (problem === undefined) return answer as Params
  throw new Refusal('input_invalid', { name: name.slice(0, 128), problem })
}

function problemOf(method: InputRequest['method'], answer: Params): string | undefined {
  switch (method) {
    case 'elicitation/create': {
      const action = own(answer, 'action')
      if (action !== 'accept' && action !== 'decline' && action !== 'cancel') {
        return 'must have an action: accept, decline or cancel'
      }
      const content = own(answer, 'content')
      return content === undefined || isObject(content) ? undefined : 'must have an object as its content'
    }
    case 'sampling/createMessage':
      return own(answer, 'content') === undefined ? 'must have content' : undefined
    case 'roots/list':
      return Array.isArray(own(answer, 'roots')) ? undefined : 'must have a list of roots'
  }
}

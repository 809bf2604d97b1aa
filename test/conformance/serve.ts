/** Serves only the fixture, for inspection by hand: prints its address and ends with its standard input. */
import { openFront } from '../support/front.ts'
import { conformanceOffers } from './inventory.ts'

const front = await openFront(undefined, {}, conformanceOffers())
console.log(front.url)
process.stdin.resume().on('end', () => void front.close())

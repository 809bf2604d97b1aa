/** A process with an engine and a run in it, to be killed: the settings as JSON are its only argument. */
import { openMachine } from '../../src/engine/machine.ts'
import type { EngineSettings } from '../../src/engine/settings.ts'
import { createSlot } from '../../src/engine/slots/create-slot.ts'
import { start, testLimits } from './engine-machine.ts'

const settings = JSON.parse(process.argv[2] ?? '') as EngineSettings
const slot = await createSlot(await openMachine(settings))
slot.bind(testLimits)
start(slot, 'bash', '(setsid sleep 1000 &); sleep 1000', { onRunning: () => process.stdout.write(`${slot.pid}\n`) })

import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/built-program.ts'],
    pool: 'forks',
    // Suites that make slots use every processor of a small machine by themselves.
    maxWorkers: 2,
    // Machines that run tests are often busy; a limit only ends what hangs.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    teardownTimeout: 30_000,
    allowOnly: false,
    reporters: ['default', ['json', { outputFile: 'build/test-report.json' }], './.ci/errors-outside-tests.ts'],
  },
})

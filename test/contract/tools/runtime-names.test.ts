import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { runtimePrompts } from '../../../src/tools/runtime/prompts.ts'
import { findRuntimeTool } from '../../../src/tools/runtime/tools.ts'

/** The 154 tools of bx-mcp, by the first part of their name: https://boxlang.ortusbooks.com/boxlang-+-++/modules/bx-mcp */
const published: Readonly<Record<string, string>> = {
  runtime:
    'get_info get_license_status get_config get_config_value config_diff get_bif_summary get_bif_info search_bifs get_component_summary get_component_info search_components get_global_services toggle_debug_mode get_class_resolver_info clear_system_cache clear_page_pool',
  jvm: 'get_memory_info get_memory_pool_details get_thread_info get_thread_dump get_hot_threads get_top_allocators get_deadlocks get_cpu_info get_gc_info trigger_gc trigger_heap_dump get_class_loading_info get_runtime_info get_system_properties get_environment_variables get_operating_system_info get_file_descriptors get_disk_usage',
  cache:
    'get_all get_names get_stats get_health get_keys get_size get_key_metadata has_key get_store_metadata clear clear_item reap clear_stats clear_all reap_all',
  datasource: 'get_all get_names get has get_config get_pool_metrics get_pool_latency test get_health',
  sql: 'get_slow_queries get_query_stats clear get_config set_config',
  http: 'get_client_count get_client_names get_clients get_soap_clients get_executor get_service_summary',
  slow_http: 'get_calls get_stats clear get_config set_config',
  requests: 'get_slow_requests get_stats get_config set_config clear',
  routes: 'get_all get_route get_summary get_config set_config clear',
  undertow: 'get_stats get_health',
  performance: 'get_snapshot',
  system: 'get_health',
  executor: 'get_all get_names get_info get_stats get_health get_health_summary',
  scheduler:
    'get_all get_names get has get_task_stats get_task_info get_all_tasks get_all_task_stats get_persisted_tasks get_health run_task pause_task resume_task pause_persisted_task resume_persisted_task pause_all_persisted_tasks resume_all_persisted_tasks',
  module: 'get_all get_names get_info get_settings get_paths has get_stats reload reload_all',
  interceptor: 'get_points has_point get_states get_state get_summary',
  app: 'get_names get_all get has get_summary stop restart sessions_clear',
  logging:
    'get_info get_config get_loggers get_logger get_root_logger get_appenders read_entries get_last_error search_entries log_message',
  watcher: 'get_all get_names get has get_stats get_health start stop restart remove',
}

const page = readFileSync(new URL('../../../docs/runtime.md', import.meta.url), 'utf8')
const omitted = page.slice(page.indexOf('## What bx-mcp has and this server has not'))

describe('a tool of bx-mcp', () => {
  const names = Object.entries(published).flatMap(([first, rest]) => rest.split(' ').map((last) => `${first}_${last}`))

  it('has the same name here, or is documented as missing with the reason', () => {
    expect(names.length).toBe(154)
    const missing = names.filter((name) => findRuntimeTool(name) === undefined)
    expect(missing.filter((name) => !omitted.includes(`\`${name}\``))).toEqual([])
    // What is here is not called missing.
    const called = [...omitted.matchAll(/^\| (?:prompts )?(.*?) \|/gm)]
      .flatMap(([, cell]) => [...cell!.matchAll(/`([a-z0-9_]+)`/g)])
      .map(([, name]) => name!)
    expect(called.filter((name) => findRuntimeTool(name) || runtimePrompts.some((one) => one.name === name))).toEqual(
      [],
    )
    expect(missing.length).toBeLessThan(names.length / 4)
  })
})

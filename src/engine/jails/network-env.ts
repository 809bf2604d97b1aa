import type { JailNetwork } from '../../base/network.ts'
import { type CachedManager, packageCacheHost } from '../../base/package-cache.ts'

/** The port of the proxy on the loopback of a jail that has a network. */
export const proxyPort = 3128

const proxy = `http://127.0.0.1:${proxyPort}`
const notProxied = 'localhost,127.0.0.1,::1'

/** Where a jail with secrets finds the certificates that it trusts: those of the machine, and that of its own authority. */
export const ownCertificatesPath = '/run/ca-certificates.crt'

/** In every image: the configuration of apt in a jail that reaches the package cache. */
export const aptCachePath = 'etc/apt/glovebox-cache.conf'

/** Variables that name a file of certificates. */
const certificatesEnv = (path: string) => ({
  SSL_CERT_FILE: path,
  REQUESTS_CA_BUNDLE: path,
  CURL_CA_BUNDLE: path,
  NODE_EXTRA_CA_CERTS: path,
  PIP_CERT: path,
  GIT_SSL_CAINFO: path,
  AWS_CA_BUNDLE: path,
  npm_config_cafile: path,
})

/**
 * Below the caller's own variables, in a run with a network. Programs find the proxy through them, which states why it refuses
 * something; those that know no proxy reach the same destinations without it.
 */
const networkEnv: Readonly<Record<string, string>> = {
  HTTP_PROXY: proxy,
  HTTPS_PROXY: proxy,
  // Not socks5h: some HTTP clients fail at their start when they know no SOCKS.
  ALL_PROXY: proxy,
  NO_PROXY: notProxied,
  http_proxy: proxy,
  https_proxy: proxy,
  all_proxy: proxy,
  no_proxy: notProxied,
  NODE_USE_ENV_PROXY: '1',
  ...certificatesEnv('/etc/ssl/certs/ca-certificates.crt'),
  // In place of those for runs without a network, which need not try twice.
  PIP_RETRIES: '2',
  UV_HTTP_RETRIES: '3',
  CARGO_NET_RETRY: '3',
  npm_config_fetch_retries: '2',
  APT_CONFIG: '/etc/apt/glovebox-network.conf',
}

/** As `networkEnv`, but in a jail with certificates of its own. */
const ownNetworkEnv = { ...networkEnv, ...certificatesEnv(ownCertificatesPath) }

/** Variables that lead package managers to the package cache. */
const cacheEnv: Readonly<Record<CachedManager, Readonly<Record<string, string>>>> = {
  pip: { PIP_INDEX_URL: `http://${packageCacheHost}/pip/`, PIP_TRUSTED_HOST: packageCacheHost },
  npm: {
    npm_config_registry: `http://${packageCacheHost}/npm/`,
    // The cache answers no requests for known vulnerabilities.
    npm_config_audit: 'false',
    // Its address would be useless outside.
    npm_config_omit_lockfile_registry_resolved: 'true',
  },
  apt: { APT_CONFIG: `/${aptCachePath}` },
}

/** Returns the variables of a jail for its network. @param network absent: it has none. */
export function networkEnvOf(network: JailNetwork | undefined): Readonly<Record<string, string>> {
  if (network === undefined) return {}
  const env = network.certificates === undefined ? networkEnv : ownNetworkEnv
  if (network.cached === undefined) return env
  return Object.assign({}, env, ...network.cached.map((manager) => cacheEnv[manager])) as typeof env
}

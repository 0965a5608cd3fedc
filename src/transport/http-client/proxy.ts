type Env = Readonly<Record<string, string | undefined>>;

/**
 * Finds the proxy for a URL in `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`; lower-case variables win.
 * Loopback addresses are never proxied.
 * @returns undefined if no proxy is to be used; a string, the invalid URL, if the variable's value is not an HTTP URL
 */
export function proxyFor(url: URL, env: Env): URL | string | undefined {
  const host = hostWithoutBrackets(url);
  if (isLoopback(host) || isInNoProxy(host, portOf(url), readVariable(env, "NO_PROXY")))
    return undefined;
  const name = url.protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY";
  const text = readVariable(env, name) ?? readVariable(env, "ALL_PROXY");
  if (text === undefined) return undefined;
  const completeUrl = text.includes("://") ? text : `http://${text}`;
  if (!URL.canParse(completeUrl)) return completeUrl;
  const proxy = new URL(completeUrl);
  return /^https?:$/.test(proxy.protocol) ? proxy : completeUrl;
}

/** Returns the host without the brackets of an IPv6 address. */
export function hostWithoutBrackets({ hostname }: URL): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}

export function portOf({ port, protocol }: URL): number {
  if (port !== "") return Number(port);
  return protocol === "https:" ? 443 : 80;
}

function readVariable(env: Env, name: string): string | undefined {
  for (const key of [name.toLowerCase(), name]) {
    const value = env[key]?.trim();
    if (value !== undefined && value !== "") return value;
  }
  return undefined;
}

function isLoopback(host: string): boolean {
  return (
    host === "localhost" || host.endsWith(".localhost") || host === "::1" || host.startsWith("127.")
  );
}

/**
 * Whether `NO_PROXY` contains the host. `example.com` and `.example.com` include subdomains, `*` means every host; an
 * entry may have a port, or be an IPv4 range.
 */
function isInNoProxy(host: string, port: number, text: string | undefined): boolean {
  return (text ?? "").split(/[\s,]+/).some((entry) => {
    if (entry === "*") return true;
    const [, name = "", entryPort] = /^(.*?)(?::(\d+))?$/.exec(withBrackets(entry)) ?? [];
    const entryHost = name.replace(/^\*?\./, "").replace(/^\[|\]$/g, "");
    if (entryHost === "" || (entryPort !== undefined && Number(entryPort) !== port)) return false;
    return host === entryHost || host.endsWith(`.${entryHost}`) || isInRange(host, entryHost);
  });
}

/** Adds brackets to an IPv6 address that has none, so that no part of it is taken for a port. */
function withBrackets(entry: string): string {
  const text = entry.toLowerCase();
  return /^[0-9a-f:]*:[0-9a-f:]*:[0-9a-f:]*$/.test(text) ? `[${text}]` : text;
}

/** Whether an IPv4 address is in a range such as `10.0.0.0/8`. */
function isInRange(host: string, range: string): boolean {
  const [, network = "", bits] = /^([\d.]+)\/(\d{1,2})$/.exec(range) ?? [];
  const address = ipv4ToNumber(host);
  const base = ipv4ToNumber(network);
  if (bits === undefined || address === undefined || base === undefined) return false;
  const size = 2 ** (32 - Math.min(32, Number(bits)));
  return Math.floor(address / size) === Math.floor(base / size);
}

function ipv4ToNumber(address: string): number | undefined {
  const octets = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(address);
  return octets?.slice(1).reduce((sum, octet) => sum * 256 + Number(octet), 0);
}

/** The hub's environment variables. */
type Env = Readonly<Record<string, string | undefined>>;

/**
 * Finds the proxy for a URL in `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`; lower-case variables win.
 * Loopback addresses are never proxied.
 * @returns undefined if there is none; a string if the proxy's URL is not usable
 */
export function proxyFor(url: URL, env: Env): URL | string | undefined {
  const host = hostWithoutBrackets(url);
  if (isLoopback(host) || isExempt(host, portOf(url), read(env, "NO_PROXY"))) return undefined;
  const name = url.protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY";
  const text = read(env, name) ?? read(env, "ALL_PROXY");
  if (text === undefined) return undefined;
  const whole = text.includes("://") ? text : `http://${text}`;
  if (!URL.canParse(whole)) return whole;
  const detour = new URL(whole);
  return /^https?:$/.test(detour.protocol) ? detour : whole;
}

/** The host without the brackets of an IPv6 address. */
export function hostWithoutBrackets({ hostname }: URL): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}

export function portOf({ port, protocol }: URL): number {
  if (port !== "") return Number(port);
  return protocol === "https:" ? 443 : 80;
}

function read(env: Env, name: string): string | undefined {
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
 * Whether `NO_PROXY` names the host: `example.com` and `.example.com` include subdomains, `*` is every host; an entry
 * may have a port, or be an IPv4 range.
 */
function isExempt(host: string, port: number, text: string | undefined): boolean {
  return (text ?? "").split(/[\s,]+/).some((entry) => {
    if (entry === "*") return true;
    const [, name = "", only] = /^(.*?)(?::(\d+))?$/.exec(plain(entry)) ?? [];
    const wanted = name.replace(/^\*?\./, "").replace(/^\[|\]$/g, "");
    if (wanted === "" || (only !== undefined && Number(only) !== port)) return false;
    return host === wanted || host.endsWith(`.${wanted}`) || isWithin(host, wanted);
  });
}

/** Adds brackets to an IPv6 address without them. Such an entry has no port. */
function plain(entry: string): string {
  const text = entry.toLowerCase();
  return /^[0-9a-f:]*:[0-9a-f:]*:[0-9a-f:]*$/.test(text) ? `[${text}]` : text;
}

/** Whether an IPv4 address is in a range such as `10.0.0.0/8`. */
function isWithin(host: string, range: string): boolean {
  const [, network = "", bits] = /^([\d.]+)\/(\d{1,2})$/.exec(range) ?? [];
  const address = numberOf(host);
  const base = numberOf(network);
  if (bits === undefined || address === undefined || base === undefined) return false;
  const size = 2 ** (32 - Math.min(32, Number(bits)));
  return Math.floor(address / size) === Math.floor(base / size);
}

function numberOf(address: string): number | undefined {
  const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(address);
  return parts?.slice(1).reduce((sum, part) => sum * 256 + Number(part), 0);
}

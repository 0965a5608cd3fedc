import { lookup } from "node:dns/promises";

/* Scopes of addresses, from wide to narrow. A server may name only addresses of its own scope or a wider one. */
export const PUBLIC = 0;
export const PRIVATE = 1;
export const LOOPBACK = 2;
/** Link-local addresses, and those of clouds' metadata services (169.254.169.254), which hand out credentials. */
export const LINK_LOCAL = 3;

/**
 * The network scope of a host, derived from its text alone: names are not resolved.
 * @param hostname a name or an address, as in `URL.hostname`; an IPv6 address with or without brackets
 */
export function networkScopeOf(hostname: string): number {
  const host = hostname.replace(/^\[|\]$|\.$/g, "").toLowerCase();
  if (host === "localhost" || host.endsWith(".localhost")) return LOOPBACK;
  if (host.includes(":")) return ipv6ScopeOf(host);
  const octets = host.split(".").map(Number);
  return octets.length === 4 && octets.every(Number.isInteger) ? ipv4ScopeOf(octets) : PUBLIC;
}

/**
 * The addresses of a host, each with its scope.
 * @returns the host itself if it is an address; none if the name cannot be resolved
 */
export async function resolveScopes(
  hostname: string,
): Promise<readonly { readonly address: string; readonly scope: number }[]> {
  const found = await lookup(hostname.replace(/^\[|\]$/g, ""), { all: true }).catch(() => []);
  return found.map(({ address }) => ({ address, scope: networkScopeOf(address) }));
}

function ipv4ScopeOf([a = 0, b = 0, c = 0, d = 0]: readonly number[]): number {
  if (a === 127) return LOOPBACK;
  const isMetadata = a === 100 && b === 100 && c === 100 && d === 200;
  if (a === 0 || (a === 169 && b === 254) || isMetadata) return LINK_LOCAL;
  const isPrivate =
    a === 10 ||
    (a === 172 && b >= 16 && b < 32) ||
    (a === 192 && b === 168) ||
    (a === 192 && b === 0 && c === 0) ||
    (a === 198 && (b === 18 || b === 19)) ||
    (a === 100 && b >= 64 && b < 128) ||
    a >= 224;
  return isPrivate ? PRIVATE : PUBLIC;
}

function ipv6ScopeOf(text: string): number {
  const groups = ipv6GroupsOf(text.replace(/%.*$/, ""));
  // What cannot be read as an address is treated as the narrowest scope.
  if (groups === undefined) return LINK_LOCAL;
  const [first = 0, second = 0, third = 0] = groups;
  const embedded = embeddedIpv4Of(groups);
  if (embedded !== undefined) return embedded;
  if ((first & 0xffc0) === 0xfe80) return LINK_LOCAL;
  const isMetadata = first === 0xfd00 && second === 0x0ec2 && groups[7] === 0x254;
  if (isMetadata) return LINK_LOCAL;
  // Unique local (fc00::/7), site-local (fec0::/10), multicast (ff00::/8), and local NAT64 (64:ff9b:1::/48).
  const isPrivate =
    (first & 0xfe00) === 0xfc00 ||
    (first & 0xffc0) === 0xfec0 ||
    (first & 0xff00) === 0xff00 ||
    (first === 0x64 && second === 0xff9b && third === 1);
  return isPrivate ? PRIVATE : PUBLIC;
}

/**
 * The scope of the IPv4 address that an IPv6 address contains: IPv4-mapped, IPv4-compatible and translated addresses
 * (RFC 4291, RFC 2765), NAT64 (RFC 6052), 6to4 (RFC 3056). Undefined if it contains none.
 */
function embeddedIpv4Of(groups: readonly number[]): number | undefined {
  const octetsAt = (at: number): readonly number[] =>
    [groups[at] ?? 0, groups[at + 1] ?? 0].flatMap((group) => [group >> 8, group & 255]);
  const head = groups
    .slice(0, 6)
    .map((group) => group.toString(16))
    .join(":");
  if (groups[0] === 0x2002) return ipv4ScopeOf(octetsAt(1));
  if (head === "0:0:0:0:0:0") {
    const isUnspecified = groups[6] === 0 && groups[7] === 0;
    if (isUnspecified) return LINK_LOCAL;
    return groups[6] === 0 && groups[7] === 1 ? LOOPBACK : ipv4ScopeOf(octetsAt(6));
  }
  const isEmbedding = ["0:0:0:0:0:ffff", "0:0:0:0:ffff:0", "64:ff9b:0:0:0:0"].includes(head);
  return isEmbedding ? ipv4ScopeOf(octetsAt(6)) : undefined;
}

/** The eight groups of an IPv6 address in any spelling; undefined if the text is none. */
function ipv6GroupsOf(text: string): readonly number[] | undefined {
  const url = `http://[${text}]/`;
  if (!URL.canParse(url)) return undefined;
  const [head = "", tail] = new URL(url).hostname.slice(1, -1).split("::");
  const parse = (part: string): readonly number[] =>
    part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16));
  const [before, after] = [parse(head), parse(tail ?? "")];
  if (tail === undefined) return before;
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => 0);
  return [...before, ...zeros, ...after];
}

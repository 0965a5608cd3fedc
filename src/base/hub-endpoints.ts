/**
 * The endpoints of a hub that are no URLs, as its documents name them: the pipes of the client that has started it, and
 * the socket to which other processes attach their clients.
 */
export const STDIO_ENDPOINT = "stdio";
export const SHARED_ENDPOINT = "shared";

/** Whether a hub lets other processes attach their clients. */
export function isSharedHub({ endpoints }: { readonly endpoints: readonly string[] }): boolean {
  return endpoints.includes(SHARED_ENDPOINT);
}

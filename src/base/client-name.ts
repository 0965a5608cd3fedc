/** What is known of an MCP client. */
export interface NamedClientFacts {
  readonly id?: string | undefined;
  /** The name that the client gives itself (`clientInfo.name`); it proves nothing. */
  readonly name?: string | undefined;
  /** The configured name of the client, if it has its own token. */
  readonly principal?: string | undefined;
  /** The id of the process that attaches the client to a shared hub. */
  readonly pid?: number | undefined;
}

/**
 * The name of a client, as all commands, logs and the page show it: its configured name and the name that it gives
 * itself, `laptop (Cursor)`, or the one that it has; else its id.
 */
export function nameOfClient({ id, name, principal }: NamedClientFacts): string {
  const [first, second] = [principal, name].filter((text) => text !== undefined && text !== "");
  if (first === undefined) return id === undefined || id === "" ? "an unknown client" : id;
  return second === undefined || second === first ? first : `${first} (${second})`;
}

/**
 * The name of a client with the id that commands take, and the process that attaches it to a shared hub:
 * `laptop (Cursor) [client-2]`, `Cursor [client-3, process 4711]`.
 */
export function nameAndIdOfClient(client: NamedClientFacts): string {
  const { id = "", pid } = client;
  const name = nameOfClient(client);
  const facts = [name === id ? "" : id, pid === undefined ? "" : `process ${pid}`].filter(Boolean);
  return facts.length === 0 ? name : `${name} [${facts.join(", ")}]`;
}

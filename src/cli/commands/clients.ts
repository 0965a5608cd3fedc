import { usageError } from "../../base/errors.ts";
import { formatProblem, suggestName } from "../../manifest/problems.ts";
import { addClient, listNamedClients } from "../../operations/clients.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { CLIENT_VERBS as VERBS, type CommandContext, type Invocation } from "../command.ts";
import { hubsOfManifest, runningHubs } from "../running-hub.ts";

/** The address of a hub over HTTP if none runs: that of `toolmux serve --http`. */
const DEFAULT_URL = "http://127.0.0.1:8700/mcp";

interface ClientsOptions {
  readonly mode: string | undefined;
  readonly servers: readonly string[];
  readonly json: boolean;
}

/** `toolmux clients`: lists the clients over HTTP that have tokens of their own, or adds one. */
export async function clients(
  invocation: Invocation<ClientsOptions>,
  context: CommandContext,
): Promise<number> {
  const [word = "list", ...rest] = invocation.args;
  switch (VERBS.find((verb) => verb === word)) {
    case "add":
      return add(rest, invocation, context);
    case "list":
      if (rest.length > 0) throw usageError("toolmux clients list takes no name.");
      return list(invocation, context);
    case undefined:
      throw usageError(
        `"toolmux clients" needs one of: ${VERBS.join(", ")}.${suggestName(word, VERBS)}`,
      );
  }
}

async function add(
  words: readonly string[],
  invocation: Invocation<ClientsOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const { mode, servers, json } = invocation.options;
  const [name, ...more] = words;
  if (name === undefined || more.length > 0)
    throw usageError("Name one client: toolmux clients add NAME");
  const document = await addClient(name, { mode, servers }, invocation, context);
  const url = await findUrl(invocation, context);
  if (json) {
    terminal.printJson({ ...document, url: url ?? DEFAULT_URL });
    return 0;
  }
  const { manifest, location, secret, token } = document;
  const headers = { Authorization: `Bearer ${token}` };
  const entry = { mcpServers: { toolmux: { url: url ?? DEFAULT_URL, headers } } };
  terminal.note(
    `added client ${name} to ${manifest}; stored its token as ${secret} in ${location}`,
  );
  terminal.note("Paste this into the configuration of the client; the token is not shown again:");
  terminal.print(JSON.stringify(entry, null, 2));
  terminal.note(
    url === undefined
      ? "To let it connect: toolmux serve --http"
      : "The running hub accepts it as soon as it has read its manifest again, within 2 s.",
  );
  return 0;
}

/** The URL of a running hub of the manifest that serves HTTP; undefined if there is none. */
async function findUrl(
  invocation: Invocation<ClientsOptions>,
  context: CommandContext,
): Promise<string | undefined> {
  const hubs = await hubsOfManifest(
    invocation,
    context,
    await runningHubs(context).catch(() => []),
  );
  return hubs.flatMap(({ endpoints }) => endpoints).find((endpoint) => /^https?:/.test(endpoint));
}

async function list(
  invocation: Invocation<ClientsOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const all = await listNamedClients(invocation, context);
  if (invocation.options.json) {
    terminal.printJson({
      clients: all.map((client) =>
        client.kind === "client"
          ? { name: client.name, mode: client.mode, servers: client.servers }
          : { name: client.name, problem: client.problems.map(formatProblem).join("\n") },
      ),
    });
    return 0;
  }
  if (all.length === 0) {
    terminal.note("No client has a token of its own. To add one: toolmux clients add NAME");
    return 0;
  }
  const { colors } = terminal.stdout;
  terminal.printTable(
    ["CLIENT", "MODE", "SERVERS", "STATE"],
    all.map((client) => {
      if (client.kind === "invalid") {
        const [problem] = client.problems;
        const text = problem === undefined ? "refused" : `refused: ${formatProblem(problem)}`;
        return [
          sanitizeLine(client.name ?? ""),
          "",
          "",
          { text: sanitizeLine(text), color: colors.red },
        ];
      }
      const { name, mode = "", servers } = client;
      return [
        sanitizeLine(name),
        mode,
        servers?.join(", ") ?? "all",
        { text: "accepted", color: colors.green },
      ];
    }),
  );
  return 0;
}

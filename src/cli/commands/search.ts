import { systemClock } from "../../base/clock.ts";
import { count } from "../../base/format.ts";
import type { RegistryEntry, ServerOption } from "../../registry/registry.ts";
import { searchServers } from "../../operations/search.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLog } from "../command-log.ts";
import { showWaiting, type TerminalStyle, wrapText } from "../../terminal/terminal.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { logRegistryFailures } from "../../operations/registries.ts";

interface SearchOptions {
  readonly from: readonly string[];
  readonly limit: number;
  readonly json: boolean;
}

/**
 * `toolmux search`: searches the registries of MCP servers.
 * @returns the exit code: 1 if nothing was found, 3 if no registry answered
 */
export async function search(
  invocation: Invocation<SearchOptions>,
  context: CommandContext,
): Promise<number> {
  const { args: words, options } = invocation;
  const log = openLog(invocation);
  const line = options.json ? undefined : context.terminal.openStatusLine();
  let endWaiting: (() => void) | undefined;
  const request = { words, from: options.from, limit: options.limit };
  const { document, entries, failures, hasAnswer } = await searchServers(
    request,
    invocation,
    context,
    (registries) => {
      const names = registries.map(({ name }) => name).join(", ");
      endWaiting = line && showWaiting(line, `searching ${names}`, systemClock);
    },
  ).finally(() => endWaiting?.());
  logRegistryFailures(failures, log);
  if (options.json) {
    context.terminal.printJson(document);
  } else if (entries.length > 0)
    context.terminal.print(describeResults(entries, context.terminal.stdout));
  else if (hasAnswer) log("warn", `found no server for "${words.join(" ")}"`);
  return entries.length > 0 ? 0 : hasAnswer ? 1 : 3;
}

function describeResults(
  listings: readonly RegistryEntry[],
  { colors, width }: TerminalStyle,
): string {
  const blocks = listings.map((entry) => {
    const { name, version, directory, description, title, repository, homepage } = entry;
    const head = [name, version, `(${directory})`].filter((part) => part !== undefined);
    const about = [title === name ? undefined : title, description].filter(Boolean).join(": ");
    const place = repository ?? homepage;
    const lines = [about, describeOptions(entry), place ?? ""];
    const [first = "", ...others] = head;
    return [
      `${colors.bold(sanitizeLine(first))} ${colors.dim(sanitizeLine(others.join(" ")))}`,
      ...lines
        .filter((line) => line !== "")
        .map((line) => wrapText(sanitizeLine(line), width, "  ")),
    ].join("\n");
  });
  const first = listings.find(({ options: offers }) => offers.length > 0);
  const hint = first === undefined ? "" : `; to add one: toolmux add ${sanitizeLine(first.name)}`;
  const summary = wrapText(count(listings.length, "server") + hint, width, "  ", "");
  return [...blocks, colors.dim(summary)].join("\n");
}

/** The packages and URLs of a registry entry; if there are none, the reasons why it cannot be added by name. */
function describeOptions({ options: offers, omissions }: RegistryEntry): string {
  return offers.length > 0 ? offers.map(describeOption).join(", ") : omissions.join(" ");
}

/** How to use the server: the name of its package, or its URL. */
function describeOption(option: ServerOption): string {
  return option.kind === "package" ? option.name : option.url;
}

import { resolve } from "node:path";
import { parseDuration } from "../../manifest/fields.ts";
import type { Manifest, PluginSpec } from "../../manifest/manifest.ts";
import { createTable } from "../../manifest/table.ts";
import { usageError } from "../../base/errors.ts";
import type { CommandContext, Invocation } from "../command.ts";
import type { HttpOptions } from "../http-options.ts";
import { serve } from "./serve.ts";

/** Name of the built-in plugin for agents, and of its server. Clients see only the tools of this server. */
const AGENTS = "agents";

export interface AgentsServeOptions extends HttpOptions {
  readonly "agents-dir": string | undefined;
  readonly "max-sessions": string | undefined;
  readonly "session-timeout": string | undefined;
}

/**
 * `toolmux agents serve`: serves a hub whose clients see the agents as tools, and no other tools. The agents use the
 * servers of the manifest, if there is one.
 */
export function serveAgents(
  invocation: Invocation<AgentsServeOptions>,
  context: CommandContext,
): Promise<number> {
  const { options } = invocation;
  const { cwd } = context;
  const directory = options["agents-dir"];
  const { "max-sessions": maxSessions, "session-timeout": sessionTimeout } = options;
  if (sessionTimeout !== undefined && (parseDuration(sessionTimeout) ?? 0) < 1)
    throw usageError(`--session-timeout must be a duration such as 30m, not "${sessionTimeout}".`);
  if (maxSessions !== undefined && !/^[1-9]\d{0,5}$/.test(maxSessions))
    throw usageError(
      `--max-sessions must be a whole number from 1 to 999999, not "${maxSessions}".`,
    );
  // Clients of such a hub have nothing else, so they are offered all that the manifest does not take away.
  const preset = { offer: "all" };
  const settings = {
    ...(maxSessions !== undefined && { maxSessions: Number(maxSessions) }),
    ...(sessionTimeout !== undefined && { sessionTimeout }),
  };
  const added: PluginSpec = {
    use: AGENTS,
    path: undefined,
    options: undefined,
    servers: undefined,
    tools: undefined,
    baseDir: cwd,
    origin: { file: "toolmux agents serve", path: [] },
  };
  const change = (spec: PluginSpec): PluginSpec =>
    spec.use !== AGENTS || spec.path !== undefined
      ? spec
      : { ...spec, options: Object.assign(createTable<unknown>(), preset, spec.options, settings) };
  const prepare = (manifest: Manifest): Manifest => {
    const hasPlugin = manifest.plugins.some(
      ({ use, path }) => use === AGENTS && path === undefined,
    );
    const plugins = [...manifest.plugins, ...(hasPlugin ? [] : [added])].map(change);
    if (directory === undefined) return { ...manifest, plugins };
    const files = manifest.agentFiles ?? { file: "toolmux agents serve", baseDir: cwd };
    return {
      ...manifest,
      plugins,
      agentFiles: { ...files, directory: resolve(cwd, directory) },
    };
  };
  const serveOptions = {
    http: options.http,
    "http-token-env": options["http-token-env"],
    token: options.token,
    stdio: options.http === undefined,
    dashboard: false,
    record: undefined,
    "record-limit": undefined,
    approval: undefined,
    "approve-all": false,
    expose: undefined,
    mode: undefined,
    servers: AGENTS,
    shared: false,
    private: true,
  };
  const changes = { prepare, mayBeAbsent: true };
  return serve({ ...invocation, options: serveOptions }, context, changes);
}

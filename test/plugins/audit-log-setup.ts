import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import plugin from "../../plugins/audit-log/index.ts";
import { validateOptions } from "../../src/manifest/plugin-options.ts";
import type { Answer, Next, ToolCall } from "../../src/plugin/plugin.ts";
import { withFolder } from "../contract/plugin-setup.ts";
import { BareHost, toolCall, toolInfo } from "./plugin-host.ts";

type Options = Parameters<typeof plugin.setup>[0];

export const TOOL = toolInfo("files", "read file");

/** A tool call; `overrides` replaces members. */
export function callOf(argumentsJson = "{}", overrides: Partial<ToolCall> = {}): ToolCall {
  const client = { id: "c1", name: "claude", version: "1.0" };
  const call = toolCall(TOOL, argumentsJson);
  return Object.assign(call, { client, number: 7, size: 123, ...overrides });
}

/** The audit-log plugin set up, with a folder for its files. */
export interface AuditLogSetup {
  /** The manifest's folder. */
  readonly folder: string;
  /** The logged messages, as `LEVEL: TEXT`. */
  readonly logged: readonly string[];
  /** Passes a call through the plugin to `next`. */
  run(call: ToolCall, next: Next): Promise<Answer>;
  /** Disposes of the plugin. @returns the lines that it has written */
  dispose(file?: string): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

/** Sets the plugin up with options as in a manifest. */
export function withAuditLog(
  input: object,
  run: (setup: AuditLogSetup) => Promise<void>,
): Promise<void> {
  return withFolder(async (folder) => {
    const pluginFolder = join(folder, "own");
    mkdirSync(pluginFolder);
    const logged: string[] = [];
    const host = Object.assign(new BareHost(), {
      log: (level: string, text: string) => void logged.push(`${level}: ${text}`),
      resolve: (path: string) => resolve(folder, path),
      folder: () => Promise.resolve(pluginFolder),
    });
    const parts = await plugin.setup(await parseOptions(input), host);
    try {
      await run({
        folder,
        logged,
        run: (call, next) => (parts.call?.(next, TOOL) ?? next)(call),
        dispose: async (file = join(pluginFolder, "audit.jsonl")) => {
          await parts.dispose?.();
          const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
          return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
        },
      });
    } finally {
      host.end.abort();
      await parts.dispose?.();
    }
  });
}

/** @throws an error with one line for each problem */
export async function parseOptions(input: object): Promise<Options> {
  assert.ok(plugin.options !== undefined);
  const result = await validateOptions(plugin.options, input, { file: "", path: [] });
  if (result.ok) return result.value;
  const lines = result.problems.map(({ path, message }) => `${path.join(".")}: ${message}`);
  throw new Error(lines.join("\n"));
}

import { usageError } from "../base/errors.ts";
import type { AgentSpec } from "./agents.ts";
import type { Filter } from "./filter.ts";
import type { SourceFile } from "./files/file-config.ts";
import { FULL_MODE, type Manifest } from "./manifest.ts";
import { describeValue, findNearest, type KeyPath, type Problem, suggestName } from "./problems.ts";
import { modeSchema } from "./schema.ts";
import { isTable } from "./table.ts";
import { validate } from "./validate.ts";

/** A mode: a named part of the catalog. Clients in this mode see nothing else. */
export interface ModeSpec {
  /** The mode's key in the manifest. */
  readonly name: string;
  readonly title: string;
  readonly icon?: string | undefined;
  readonly tools: Filter;
  /**
   * The prompts that are shown; undefined: those of the servers to which `tools` is limited, or all if it is not
   * limited.
   */
  readonly prompts?: Filter | undefined;
  /** The resources, resource templates and skills that are shown; undefined: the same default as for `prompts`. */
  readonly resources?: Filter | undefined;
  /** The problems of the mode's table. If there are any, the mode shows nothing, and cannot be `hub.mode`. */
  readonly problems: readonly Problem[];
}

/** The mode that hides nothing. */
export const FULL_ACCESS: ModeSpec = {
  name: FULL_MODE,
  title: "Full Access",
  tools: "all",
  problems: [],
};

const NOTHING: Filter = { or: [] };

/** A mode as configured in one file. */
export interface ModeConfig {
  readonly file: string;
  readonly path: KeyPath;
  readonly spec: Omit<ModeSpec, "problems">;
}

/** Reads the table `modes` of a file. */
export function readModes(
  table: unknown,
  { file }: SourceFile,
): { readonly modes: ReadonlyMap<string, ModeConfig>; readonly problems: readonly Problem[] } {
  const modes = new Map<string, ModeConfig>();
  if (!isTable(table)) {
    const message = `expected a table of modes, found ${describeValue(table, false)}`;
    return { modes, problems: [{ file, path: ["modes"], at: "value", message }] };
  }
  const problems: Problem[] = [];
  for (const [name, entry] of Object.entries(table)) {
    const path = ["modes", name];
    if (name === FULL_MODE) {
      const message = `"${FULL_MODE}" is the mode that hides nothing, and cannot be changed; use another name`;
      problems.push({ file, path, at: "key", message });
      continue;
    }
    if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/.test(name)) {
      const message = "the name of a mode has letters, digits, _ . and -, at most 64";
      problems.push({ file, path, at: "key", message });
    }
    const checked = validate(modeSchema(), entry, { file, path });
    if (checked.ok) {
      const { title = name, ...rest } = checked.value;
      modes.set(name, { file, path, spec: { name, title, ...rest } });
    } else {
      problems.push(...checked.problems);
      const spec = { name, title: name, tools: NOTHING, prompts: NOTHING, resources: NOTHING };
      modes.set(name, { file, path, spec });
    }
  }
  return { modes, problems };
}

/**
 * The merged modes. If several files configure the same mode, the last one counts.
 * @param problems the problems of the modes' tables, with positions
 */
export function makeModes(
  configs: readonly ModeConfig[],
  problems: readonly Problem[],
): readonly ModeSpec[] {
  const merged = new Map(configs.map((config) => [config.spec.name, config]));
  return [...merged.values()].map(({ file, path, spec }) => {
    const own = problems.filter(
      (problem) => problem.file === file && path.every((key, i) => problem.path[i] === key),
    );
    return own.length === 0
      ? { ...spec, problems: own }
      : { ...spec, tools: NOTHING, prompts: NOTHING, resources: NOTHING, problems: own };
  });
}

/** The reason why a mode cannot be used, as the end of a sentence; undefined if it can be used. */
export function modeFault(name: string, modes: readonly ModeSpec[]): string | undefined {
  if (name === FULL_MODE) return undefined;
  const mode = modes.find((one) => one.name === name);
  if (mode !== undefined) {
    return mode.problems.length === 0 ? undefined : `the table of mode "${name}" has a problem`;
  }
  const names = [FULL_MODE, ...modes.map((one) => one.name)];
  const nearest = findNearest(name, names);
  const more =
    nearest === undefined
      ? `; the modes are ${names.map((one) => `"${one}"`).join(", ")}`
      : `; did you mean "${nearest}"?`;
  return `there is no mode "${name}"${more}`;
}

/** The reason why a mode cannot be used, as a whole sentence; undefined if it can be used. */
export function describeModeFault(name: string, modes: readonly ModeSpec[]): string | undefined {
  const fault = modeFault(name, modes);
  if (fault === undefined) return undefined;
  return `${fault.charAt(0).toUpperCase()}${fault.slice(1)}${fault.endsWith("?") ? "" : "."}`;
}

/** The agents whose tables are valid. An agent with a mode gets the tools of that mode. */
export function validAgents(manifest: Manifest): ReadonlyMap<string, AgentSpec> {
  const valid = [...(manifest.agents?.values() ?? [])].flatMap((spec): AgentSpec[] => {
    if ("problems" in spec) return [];
    return [spec.mode === undefined ? spec : { ...spec, tools: filterOfMode(spec.mode, manifest) }];
  });
  return new Map(valid.map((spec) => [spec.name, spec]));
}

/**
 * The tool filter of a mode. A mode with problems shows no tools.
 * @throws {HubError} usage if there is no such mode
 */
export function filterOfMode(name: string, { modes = [] }: Manifest): Filter {
  if (name === FULL_MODE) return "all";
  const mode = modes.find((one) => one.name === name);
  if (mode !== undefined) return mode.problems.length > 0 ? { or: [] } : mode.tools;
  const names = [FULL_MODE, ...modes.map((one) => one.name)];
  const all =
    modes.length === 0 ? `The only mode is ${FULL_MODE}.` : `The modes are: ${names.join(", ")}.`;
  const more = suggestName(name, names) || ` ${all}`;
  throw usageError(`There is no mode "${name}".${more}`);
}

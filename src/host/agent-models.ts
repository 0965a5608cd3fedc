import { createModel } from "../agent/create-model.ts";
import type { Model } from "../agent/model.ts";
import type { AgentChecks } from "../agent-files/agent-library.ts";
import { type AgentFile, shellWord } from "../agent-files/agent-file.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import { openSchemeResolvers } from "../hub/transport-factory.ts";
import { findModel, type Models } from "../manifest/agents.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { manifestError, suggestName } from "../manifest/problems.ts";
import { sanitizeLine } from "../terminal/log.ts";
import { Redactor } from "../transport/redact.ts";

/** Removes from a text the API keys of the models that were opened so far, and what `redact` removes. */
export class AgentRedactor {
  readonly #redact: (text: string) => string;
  readonly #keys = new Set<string>();
  #redactor = new Redactor([]);
  #keyCount = 0;

  /** @param redact removes other secrets, such as those of servers */
  constructor(redact: (text: string) => string = (text) => text) {
    this.#redact = redact;
  }

  /** Receives the API keys of models. */
  get keys(): Set<string> {
    return this.#keys;
  }

  readonly apply = (text: string): string => {
    if (this.#keys.size !== this.#keyCount) {
      this.#keyCount = this.#keys.size;
      this.#redactor = new Redactor([...this.#keys]);
    }
    return this.#redact(this.#redactor.apply(text));
  };
}

/**
 * Makes the function that opens a model by its name.
 * @param keys receives the resolved API keys, so that the caller can redact them
 * @param file the agent file whose agents use the models
 */
export function modelFactory(
  manifest: Pick<Manifest, "models">,
  context: Pick<SystemEnvironment, "env" | "platform" | "cwd">,
  keys: Set<string>,
  file?: AgentFile,
): (name: string) => Promise<Model> {
  const { env, cwd } = context;
  const schemesFor = openSchemeResolvers(context);
  const open = async (name: string): Promise<Model> => {
    const { models } = manifest;
    const spec = findModel(name, { models, baseDir: cwd });
    if (spec === undefined && file?.forbiddenModels?.includes(name)) {
      const source = sanitizeLine(file.source);
      const text = `There is no model "${name}" in the manifest, and the one in ${source} is used only if you trust that file.`;
      throw new HubError("agentInvalid", text, {
        hint: `To allow it: toolmux trust ${shellWord(source)}`,
      });
    }
    if (spec === undefined) {
      const more = suggestName(name, [...(models?.keys() ?? [])]);
      const text = `There is no model "${name}".${more}`;
      throw new HubError("agentInvalid", text, {
        hint: "Describe it in the manifest ([models.NAME]), or write PROVIDER/MODEL.",
      });
    }
    if ("problems" in spec) throw manifestError(spec.problems);
    const { baseDir, secretSources } = spec;
    const schemes = schemesFor({ baseDir, ...(secretSources && { secretSources }) }, new Map());
    return createModel(spec, { env, cwd, schemes, secrets: keys });
  };
  return (name) =>
    name === "auto" && manifest.models?.has(name) !== true ? openFirst(manifest, open) : open(name);
}

/**
 * Opens the first model of a manifest that can be opened: files of agents name it `auto`.
 * @throws {HubError} agentInvalid if there is none
 */
async function openFirst(
  { models }: Pick<Manifest, "models">,
  open: (name: string) => Promise<Model>,
): Promise<Model> {
  for (const name of models?.keys() ?? []) {
    try {
      return await open(name);
    } catch {
      // The next one may have a key.
    }
  }
  const text =
    'The model "auto" is the first model of the manifest that can be used, and there is none.';
  const hint =
    "Describe one in the manifest ([models.NAME]), or name another: --model PROVIDER/MODEL.";
  throw new HubError("agentInvalid", text, { hint });
}

/**
 * Makes the function that says why a model cannot be used, by its name; undefined: it can. Sends no request to it.
 * @param file the agent file whose agents use the models
 */
export function modelCheck(
  { models }: Pick<Manifest, "models">,
  context: SystemEnvironment,
  file?: AgentFile,
): (name: string) => Promise<string | undefined> {
  const all = file === undefined ? models : modelsFor(file, models);
  const open = modelFactory({ ...(all && { models: all }) }, context, new Set(), file);
  return async (name) => {
    try {
      await open(name);
      return undefined;
    } catch (error) {
      const { message, hint } = toHubError(error);
      return hint === undefined ? message : `${message} ${hint}`;
    }
  };
}

/** The checks of agents for a list of them: whether their models can be opened. Sends no request to a model. */
export function agentChecks(
  manifest: Pick<Manifest, "models">,
  context: SystemEnvironment,
): AgentChecks {
  const ofManifest = modelCheck(manifest, context);
  return {
    spec: ({ model }) => ofManifest(model),
    // Only the model of the entry agent decides whether a run can begin.
    file: (file) =>
      modelCheck(manifest, context, file)(file.agents.get(file.entry)?.spec.model ?? ""),
  };
}

/** The models of a file's agents: those of the file, and those of the manifest that the file does not define. */
export function modelsFor(file: AgentFile, models: Manifest["models"]): Models {
  return new Map([...(models ?? []), ...file.models]);
}

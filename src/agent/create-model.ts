import { type Clock, systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { formatDuration } from "../base/format.ts";
import type { Env } from "../base/paths.ts";
import type { InvalidModel, ModelSpec } from "../manifest/agents.ts";
import { manifestError } from "../manifest/problems.ts";
import { resolveModel, type SchemeResolvers } from "../manifest/resolve.ts";
import { Redactor } from "../transport/redact.ts";
import { type Model, modelError, type ModelPart } from "./model.ts";

/** The parts of the process and of the run that models need. */
export interface ModelEnvironment {
  readonly env: Env;
  readonly cwd: string;
  readonly clock?: Clock;
  /** The resolvers of the model's `${scheme:…}` values, and of the secret that is named after the provider. */
  readonly schemes: SchemeResolvers;
  /** Receives values to redact, even if the model cannot be created. */
  readonly secrets?: Set<string>;
}

/**
 * Makes a model ready for a run: resolves its `${…}` values, and loads the code of its provider. Sends no request.
 * @throws {HubError} manifestInvalid, valueMissing or notSupported
 */
export async function createModel(
  spec: ModelSpec | InvalidModel,
  environment: ModelEnvironment,
): Promise<Model> {
  if ("problems" in spec) throw manifestError(spec.problems);
  const { clock = systemClock } = environment;
  return limitTime(await createWithoutTimeLimit(spec, environment, clock), spec.timeout, clock);
}

async function createWithoutTimeLimit(
  spec: ModelSpec,
  environment: ModelEnvironment,
  clock: Clock,
): Promise<Model> {
  if (spec.provider === "sampling") {
    const { createSamplingModel } = await import("./sampling.ts");
    return createSamplingModel(spec);
  }
  const { env, cwd, schemes, secrets } = environment;
  const resolved = await resolveModel(spec, env, cwd, schemes, secrets);
  if (spec.provider === "script") {
    const { createScriptModel } = await import("./script.ts");
    return createScriptModel(spec, resolved.script ?? "", clock);
  }
  const { createProviderModel } = await import("./providers.ts");
  const { url, apiKey } = resolved;
  const redactor = new Redactor(resolved.secrets);
  return createProviderModel({ ...spec, provider: spec.provider }, { url, apiKey, redactor, env });
}

/** Limits the model: each request is aborted after `timeout` ms, or when its reader stops reading. */
function limitTime(model: Model, timeout: number, clock: Clock): Model {
  const { name, contextTokens, takesImages, maxTurns } = model;
  return {
    name,
    contextTokens,
    takesImages,
    ...(maxTurns !== undefined && { maxTurns }),
    async *stream(request, signal): AsyncGenerator<ModelPart> {
      signal.throwIfAborted();
      const own = new AbortController();
      const cancelTimer = clock.after(timeout, () => {
        const text = `Model "${name}" did not finish its answer within ${formatDuration(timeout)}.`;
        own.abort(modelError(text, { reason: "timeout" }));
      });
      let isFinished = false;
      try {
        for await (const part of model.stream(request, AbortSignal.any([signal, own.signal]))) {
          isFinished = part.type === "finish";
          yield part;
          if (isFinished) return;
        }
      } catch (error) {
        if (isFinished) return;
        if (signal.aborted) throw signal.reason;
        if (own.signal.aborted) throw own.signal.reason;
        throw error;
      } finally {
        cancelTimer();
        own.abort(new HubError("cancelled", "Nobody reads the answer any more."));
      }
      const text = `Model "${name}" stopped in the middle of its answer.`;
      throw modelError(text, { reason: "badAnswer" });
    },
  };
}

import type { Section } from "../catalog/section.ts";
import { wrapOutputSchema } from "../protocol/output.ts";

const cachedSections = new WeakMap<Section, Section>();

/**
 * A section in the form of the legacy era, cached: output schemas of modern servers' tools are wrapped to be of type
 * object. Entries of legacy servers pass unchanged.
 */
export function legacySection(section: Section): Section {
  const { kind, info: origin } = section;
  if (kind !== "tools" || origin.modernServers.size === 0) return section;
  const cached = cachedSections.get(section);
  if (cached !== undefined) return cached;
  const result = section.withBytes((entry) => {
    if (!origin.modernServers.has(entry.server)) return undefined;
    const { bytes } = entry;
    const wrappedBytes = wrapCached(bytes);
    return wrappedBytes === bytes ? undefined : wrappedBytes;
  });
  cachedSections.set(section, result);
  return result;
}

/** By the bytes before wrapping: entries of an unchanged server have the very same bytes in the next section. */
const wrappedTools = new WeakMap<Uint8Array, Uint8Array>();

function wrapCached(bytes: Uint8Array): Uint8Array {
  const cached = wrappedTools.get(bytes);
  if (cached !== undefined) return cached;
  const result = wrapOutputSchema(bytes);
  wrappedTools.set(bytes, result);
  return result;
}

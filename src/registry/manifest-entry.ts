import { sanitizePrefix } from "../manifest/merge/merge.ts";
import { createTable, type Table } from "../manifest/table.ts";
import { SECRET_NAME } from "../manifest/interpolate.ts";
import type { PackageOption, RegistryInput, RemoteOption, ServerOption } from "./registry.ts";

/** A value that must be set before a server can start. */
export interface RequiredValue {
  readonly kind: "secret" | "variable";
  /** The name of the secret or of the environment variable. */
  readonly name: string;
  readonly description: string | undefined;
}

/** The manifest entry of a server from a registry. */
export interface ManifestEntry {
  readonly entry: Table;
  readonly requiredValues: readonly RequiredValue[];
  /** Optional settings that were left out, such as `env.LOG_LEVEL` or `argument --port`. */
  readonly optional: readonly string[];
}

/** Derives a server's key in the manifest from its name in a registry. */
export function serverKeyOf(name: string, separator: string): string {
  return sanitizePrefix(name.split("/").at(-1) ?? name, separator);
}

/**
 * Makes the manifest entry for one way to run or reach a server. A required value that the registry does not give
 * becomes a reference (`${secret:…}`, `${env:…}`); text from the registry is escaped, so that it cannot contain
 * references.
 * @param key the server's key in the manifest
 * @returns undefined if the registry's data is invalid
 */
export function makeManifestEntry(option: ServerOption, key: string): ManifestEntry | undefined {
  const builder = new EntryBuilder(key);
  const entry = option.kind === "package" ? builder.package(option) : builder.remote(option);
  const { needs, optional } = builder;
  return entry === undefined ? undefined : { entry, requiredValues: [...needs.values()], optional };
}

const VARIABLE_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const HEADER_NAME = /^[A-Za-z0-9-]+$/;

class EntryBuilder {
  readonly #key: string;
  readonly needs = new Map<string, RequiredValue>();
  readonly optional: string[] = [];

  constructor(key: string) {
    this.#key = key;
  }

  package({ name, args, env }: PackageOption): Table | undefined {
    const variables = this.#fillTable(env, VARIABLE_NAME, "env");
    if (variables === undefined) return undefined;
    const given = args.flatMap((arg) => this.#argument(arg));
    return withoutEmpty({ package: name, args: given, env: variables });
  }

  remote({ url, transport, headers, variables }: RemoteOption): Table | undefined {
    const headerTable = this.#fillTable(headers, HEADER_NAME, "headers");
    if (headerTable === undefined) return undefined;
    const filled = this.#substitute(url, variables, "");
    const transportTable = transport === "sse" ? { transport } : {};
    return withoutEmpty({ url: filled, ...transportTable, headers: headerTable });
  }

  /** Makes a table of values by name. @returns undefined if a name is invalid */
  #fillTable(inputs: readonly RegistryInput[], names: RegExp, where: string): Table | undefined {
    const table = createTable<string>();
    for (const input of inputs) {
      if (!names.test(input.name)) return undefined;
      const value = this.#value(input, input.name);
      if (value === undefined) this.optional.push(`${where}.${input.name}`);
      else table[input.name] = value;
    }
    return table;
  }

  #argument(input: RegistryInput): readonly string[] {
    const { name, description } = input;
    const value = this.#value(input, name === "" ? (description ?? "argument") : name);
    if (value !== undefined) return name === "" ? [value] : [name, value];
    // A flag has no value; if it is required, its name alone is the argument.
    if (input.isRequired) return name === "" ? [] : [name];
    this.optional.push(`argument ${name === "" ? (description ?? "") : name}`.trim());
    return [];
  }

  /** The value of an input: fixed, default or a reference. @returns undefined if the value may be left out */
  #value(input: RegistryInput, name: string): string | undefined {
    if (input.value !== undefined) return this.#substitute(input.value, input.variables, name);
    if (input.fallback !== undefined && !input.isSecret) return escape(input.fallback);
    return input.isRequired ? this.#addReference(input, name) : undefined;
  }

  /**
   * Replaces each variable in braces by its value, or else its default, or else a reference (`${secret:…}`,
   * `${env:…}`) that is resolved when the server starts. Unknown variables stay as they are.
   */
  #substitute(text: string, variables: ReadonlyMap<string, RegistryInput>, owner: string): string {
    return escape(text).replaceAll(
      /\{([^{}]+)\}/g,
      (whole, name: string, at: number, all: string) => {
        const input = variables.get(name);
        if (input === undefined || all[at - 1] === "$") return whole;
        const { value, fallback, isSecret } = input;
        if (value !== undefined) return escape(value);
        if (fallback !== undefined && !isSecret) return escape(fallback);
        return this.#addReference(
          input,
          variables.size === 1 && VARIABLE_NAME.test(owner) ? owner : name,
        );
      },
    );
  }

  #addReference({ isSecret, description }: RegistryInput, label: string): string {
    const name =
      label.replaceAll(/[^A-Za-z0-9]+/g, "_").replaceAll(/^_+|(?<!_)_+$/g, "") || "value";
    const secret = `${this.#key}/${name}`;
    if (isSecret && SECRET_NAME.test(secret)) {
      this.needs.set(`secret ${secret}`, { kind: "secret", name: secret, description });
      return `\${secret:${secret}}`;
    }
    const variable = /^\d/.test(name) ? `_${name.toUpperCase()}` : name.toUpperCase();
    this.needs.set(`variable ${variable}`, { kind: "variable", name: variable, description });
    return `\${env:${variable}}`;
  }
}

/** Escapes a text, so that a manifest takes it literally. */
function escape(text: string): string {
  // The replacement is a function because in a replacement string `$$` means `$`.
  return text.replaceAll("${", () => "$${");
}

/** Drops empty tables and arrays. */
function withoutEmpty(entry: Table): Table {
  const filled = Object.entries(entry).filter(
    ([, value]) => typeof value === "string" || Object.keys(value as object).length > 0,
  );
  return Object.assign(createTable<unknown>(), Object.fromEntries(filled));
}

import { sanitizePrefix } from "../manifest/prefix.ts";
import { createTable, type Table } from "../manifest/table.ts";
import { SECRET_NAME } from "../manifest/interpolate.ts";
import type { Input, Offer, PackageOffer, RemoteOffer } from "./registry.ts";

/** A value that must be set before a server can start. */
export interface Need {
  readonly kind: "secret" | "variable";
  /** The name of the secret or of the environment variable. */
  readonly name: string;
  readonly description: string | undefined;
}

/** The manifest entry of a server from a registry. */
export interface Recipe {
  readonly entry: Table;
  readonly needs: readonly Need[];
  /** Optional settings that were left out: `env.LOG_LEVEL`, `argument --port`. */
  readonly optional: readonly string[];
}

/** Derives a server's key in the manifest from its name in a registry. */
export function keyOf(name: string, separator: string): string {
  return sanitizePrefix(name.split("/").at(-1) ?? name, separator);
}

/**
 * Makes the manifest entry for one way to run or reach a server. A required value that is not given becomes a reference
 * (`${secret:…}`, `${env:…}`); text from the registry is escaped, so that it cannot contain references.
 * @param key the server's key in the manifest
 * @returns undefined if the registry's data is invalid
 */
export function makeRecipe(offer: Offer, key: string): Recipe | undefined {
  const draft = new Draft(key);
  const entry = offer.kind === "package" ? draft.package(offer) : draft.remote(offer);
  const { needs, optional } = draft;
  return entry === undefined ? undefined : { entry, needs: [...needs.values()], optional };
}

const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;
const FIELD = /^[A-Za-z0-9-]+$/;

class Draft {
  readonly #key: string;
  readonly needs = new Map<string, Need>();
  readonly optional: string[] = [];

  constructor(key: string) {
    this.#key = key;
  }

  package({ name, args, env }: PackageOffer): Table | undefined {
    const variables = this.#fill(env, VARIABLE, "env");
    if (variables === undefined) return undefined;
    const given = args.flatMap((arg) => this.#argument(arg));
    return compose({ package: name, args: given, env: variables });
  }

  remote({ url, transport, headers, variables }: RemoteOffer): Table | undefined {
    const fields = this.#fill(headers, FIELD, "headers");
    if (fields === undefined) return undefined;
    const filled = this.#substitute(url, variables, "");
    const old = transport === "sse" ? { transport } : {};
    return compose({ url: filled, ...old, headers: fields });
  }

  /** @returns undefined if a name is invalid */
  #fill(inputs: readonly Input[], names: RegExp, where: string): Table | undefined {
    const table = createTable<string>();
    for (const input of inputs) {
      if (!names.test(input.name)) return undefined;
      const value = this.#value(input, input.name);
      if (value === undefined) this.optional.push(`${where}.${input.name}`);
      else table[input.name] = value;
    }
    return table;
  }

  #argument(input: Input): readonly string[] {
    const { name, description } = input;
    const value = this.#value(input, name === "" ? (description ?? "argument") : name);
    if (value !== undefined) return name === "" ? [value] : [name, value];
    // A flag has no value but may be required.
    if (input.isRequired) return name === "" ? [] : [name];
    this.optional.push(`argument ${name === "" ? (description ?? "") : name}`.trim());
    return [];
  }

  /** @returns undefined if the value may be left out */
  #value(input: Input, name: string): string | undefined {
    if (input.value !== undefined) return this.#substitute(input.value, input.variables, name);
    if (input.fallback !== undefined && !input.isSecret) return escape(input.fallback);
    return input.isRequired ? this.#refer(input, name) : undefined;
  }

  /** Replaces variables in braces by their values, defaults or references; unknown names stay. */
  #substitute(text: string, variables: ReadonlyMap<string, Input>, owner: string): string {
    return escape(text).replaceAll(
      /\{([^{}]+)\}/g,
      (whole, name: string, at: number, all: string) => {
        const input = variables.get(name);
        if (input === undefined || all[at - 1] === "$") return whole;
        const { value, fallback, isSecret } = input;
        if (value !== undefined) return escape(value);
        if (fallback !== undefined && !isSecret) return escape(fallback);
        return this.#refer(input, variables.size === 1 && VARIABLE.test(owner) ? owner : name);
      },
    );
  }

  #refer({ isSecret, description }: Input, said: string): string {
    const name = said.replaceAll(/[^A-Za-z0-9]+/g, "_").replaceAll(/^_+|_+$/g, "") || "value";
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
  // A function, because in a replacement string `$$` means `$`.
  return text.replaceAll("${", () => "$${");
}

/** Drops empty tables and arrays. */
function compose(entry: Table): Table {
  const filled = Object.entries(entry).filter(
    ([, value]) => typeof value === "string" || Object.keys(value as object).length > 0,
  );
  return Object.assign(createTable<unknown>(), Object.fromEntries(filled));
}

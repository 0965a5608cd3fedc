import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { pullAgent, type RegistryOptions } from "../../src/agent-files/registry.ts";
import {
  formatReference,
  parseReference,
  parseReferenceOrThrow,
} from "../../src/agent-files/reference.ts";
import { readDockerCredentials } from "../../src/agent-files/docker-config.ts";
import { HubError } from "../../src/base/errors.ts";
import { type Fetch, makeFetch } from "../../src/transport/http-client/fetch.ts";
import {
  AGENT_TYPE,
  AGENT_YAML,
  digestOf,
  INDEX_TYPE,
  MANIFEST_TYPE,
  type OciRegistry,
  withOciRegistry,
} from "../fixtures/oci-registry.ts";
import { itIn } from "../harness/in-folder.ts";

const NEVER = new AbortController().signal;
const dial = makeFetch({ ca: undefined, env: {} });

/** Lets `reg.example` and `cdn.example` lead to registries on this machine. */
function routed(hosts: Readonly<Record<string, OciRegistry>>): Fetch {
  return (input, init) => {
    const url = new URL(input);
    const registry = hosts[url.host];
    if (registry === undefined) throw new HubError("internal", `nothing may reach ${url.host}`);
    assert.equal(url.protocol, "https:");
    return dial(`http://${registry.host}${url.pathname}${url.search}`, init);
  };
}

function pull(text: string, options: Partial<RegistryOptions> = {}) {
  const base = { fetch: dial, credentialsFor: () => Promise.resolve(undefined) };
  return pullAgent(parseReferenceOrThrow(text), { ...base, ...options }, NEVER);
}

/** What pulling `team/pirate` fails with. */
async function failure(
  registry: OciRegistry,
  options: Partial<RegistryOptions> & { readonly reference?: string } = {},
): Promise<HubError> {
  const { reference = `${registry.host}/team/pirate`, ...others } = options;
  const error: unknown = await pull(reference, others).catch((thrown: unknown) => thrown);
  assert.ok(error instanceof HubError, String(error));
  return error;
}

const known = (user: string) => ({
  credentialsFor: () => {
    const [username = "", password = ""] = user.split(":");
    return Promise.resolve({ username, password });
  },
});

describe("a reference", () => {
  const hex = "a".repeat(64);
  for (const [text, whole] of [
    ["pirate", "docker.io/library/pirate:latest"],
    ["agentcatalog/pirate", "docker.io/agentcatalog/pirate:latest"],
    ["ghcr.io/owner/a/b:1.2", "ghcr.io/owner/a/b:1.2"],
    ["localhost:5000/x", "localhost:5000/x:latest"],
    ["[::1]:5000/x:y", "[::1]:5000/x:y"],
    ["index.docker.io/x/y", "docker.io/x/y:latest"],
    [`x/y@sha256:${hex}`, `docker.io/x/y@sha256:${hex}`],
    [`x/y:z@sha256:${hex}`, `docker.io/x/y:z@sha256:${hex}`],
    ...[
      "",
      "X/y",
      "x/../y",
      "x//y",
      "x/y:",
      "x/y@sha256:abc",
      "a b",
      "x/y:-",
      "http://x/y",
      "/x",
    ].map((wrong) => [wrong, undefined] as const),
  ] as const) {
    it(`${text} is ${whole ?? "none"}`, () => {
      const parsed = parseReference(text);
      assert.equal(parsed && formatReference(parsed), whole);
    });
  }
});

describe("a pull", () => {
  it("gets an agent by its tag and by its digest", () =>
    withOciRegistry(async (registry) => {
      const digest = registry.putAgent("team/pirate", "1.2");
      for (const suffix of [":1.2", `@${digest}`]) {
        const pulled = await pull(`${registry.host}/team/pirate${suffix}`);
        assert.equal(pulled.digest, digest);
        assert.equal(new TextDecoder().decode(pulled.content), AGENT_YAML);
        assert.equal(pulled.contentDigest, digestOf(AGENT_YAML));
      }
    }));

  for (const where of ["entry", "manifest"] as const) {
    it(`gets the first agent of an index, whose type stands in the ${where}`, () =>
      withOciRegistry(async (registry) => {
        const other = { artifactType: "x/y", config: {}, annotations: {}, layers: [] };
        const otherDigest = registry.putAgent("team/pirate", "other", "{}", other);
        const digest = registry.putAgent("team/pirate", "agent", AGENT_YAML, { annotations: {} });
        const entries = [otherDigest, digest].map((one) => ({
          mediaType: MANIFEST_TYPE,
          digest: one,
          size: 1,
          ...(where === "entry" && one === digest && { artifactType: AGENT_TYPE }),
        }));
        const index = { schemaVersion: 2, mediaType: INDEX_TYPE, manifests: entries };
        registry.put("team/pirate/manifests/all", index, INDEX_TYPE);
        assert.equal((await pull(`${registry.host}/team/pirate:all`)).digest, digest);
      }));
  }

  it("gets a token if the registry asks for one, once", () =>
    withOciRegistry(async (registry) => {
      registry.auth = { scheme: "bearer", user: "ann:secret" };
      await pull(`${registry.host}/team/pirate`, known("ann:secret"));
      const tokens = registry.requests.filter(({ path }) => path.startsWith("/token"));
      const scope = "/token?service=registry&scope=repository%3Ateam%2Fpirate%3Apull";
      assert.deepEqual(
        tokens.map(({ path }) => path),
        [scope],
      );
    }));

  it("sends a user and a password to a registry that asks for them, and only then", () =>
    withOciRegistry(async (registry) => {
      registry.auth = { scheme: "basic", user: "ann:secret" };
      await pull(`${registry.host}/team/pirate`, known("ann:secret"));
      assert.equal(registry.requests[0]?.authorization, undefined);
      assert.ok(registry.requests.at(-1)?.authorization?.startsWith("Basic "));
    }));

  it("sends neither credentials nor tokens to another host", () =>
    withOciRegistry((registry) =>
      withOciRegistry(async (other) => {
        registry.auth = { scheme: "bearer", realm: "https://auth.example/token" };
        other.intercept = ({ path }, response) => {
          if (!path.startsWith("/back/")) return false;
          response.writeHead(302, { location: `https://reg.example${path.slice(5)}` }).end();
          return true;
        };
        let redirected = 0;
        registry.intercept = ({ path }, response) => {
          if (!path.includes("/blobs/") || redirected++ > 0) return false;
          const target = `https://cdn.example${path}`;
          response.writeHead(307, { location: target }).end();
          return true;
        };
        const hosts = { "reg.example": registry, "cdn.example": other, "auth.example": other };
        const options = { fetch: routed(hosts), ...known("ann:secret") };
        await pull("reg.example/team/pirate", options);
        assert.ok(other.requests.length === 2);
        assert.deepEqual(
          other.requests.map(({ authorization }) => authorization),
          [undefined, undefined],
        );
        // A further redirect back to the registry does not bring them back, either.
        registry.intercept = ({ path }, response) => {
          if (!path.includes("/blobs/") || path.endsWith("?again")) return false;
          response.writeHead(307, { location: `https://cdn.example/back${path}?again` }).end();
          return true;
        };
        const again = { ...options, reference: "reg.example/team/pirate" };
        assert.equal((await failure(registry, again)).code, "unauthorized");
        const back = registry.requests.filter(({ path }) => path.endsWith("?again"));
        assert.deepEqual([...new Set(back.map((one) => one.authorization))], [undefined]);
      }),
    ));

  const endless = { location: "/v2/team/pirate/manifests/latest" };
  const redirect =
    (location: string): OciRegistry["intercept"] =>
    ({ path }, response) => {
      if (!path.includes("/blobs/")) return false;
      response.writeHead(302, { location }).end();
      return true;
    };
  const answer =
    (part: string, send: (response: Parameters<OciRegistry["intercept"]>[1]) => void) =>
    (registry: OciRegistry): void => {
      registry.intercept = ({ path }, response) => {
        if (!path.includes(part)) return false;
        send(response);
        return true;
      };
    };

  const layer = (more: object) => (registry: OciRegistry) =>
    void registry.putAgent("team/pirate", "latest", AGENT_YAML, {
      layers: [{ mediaType: "application/yaml", digest: digestOf(AGENT_YAML), size: 9, ...more }],
    });

  const REFUSALS: Readonly<Record<string, readonly [HubError["code"], (r: OciRegistry) => void]>> =
    {
      "of what does not exist": [
        "agentNotFound",
        answer("/manifests/", (r) => r.writeHead(404).end()),
      ],
      "that is refused after a token, without asking again": [
        "unauthorized",
        (registry) => {
          registry.auth = { scheme: "bearer" };
          answer("/v2/", (r) =>
            r
              .writeHead(401, {
                "www-authenticate": `Bearer realm="http://${registry.host}/token"`,
              })
              .end(),
          )(registry);
        },
      ],
      "that needs credentials that nobody has": [
        "unauthorized",
        (registry) => (registry.auth = { scheme: "bearer", user: "ann:secret" }),
      ],
      "that needs a way to authorize that is unknown": [
        "unauthorized",
        answer("/v2/", (r) => r.writeHead(401, { "www-authenticate": "Negotiate" }).end()),
      ],
      "of a manifest that is not the one of its digest": [
        "digestMismatch",
        answer("/manifests/", (r) => {
          const digest = `sha256:${"0".repeat(64)}`;
          r.writeHead(200, { "docker-content-digest": digest }).end("{}");
        }),
      ],
      "of a layer that is not the one of its digest": [
        "digestMismatch",
        answer("/blobs/", (r) => r.end("agents: {}")),
      ],
      "of a layer that says that it is too long": ["messageTooLarge", layer({ size: 2 ** 21 })],
      "of a layer that is longer than it says": [
        "messageTooLarge",
        answer("/blobs/", (r) => {
          const send = (): void => {
            while (!r.destroyed && r.write("x".repeat(65_536)));
            if (!r.destroyed) r.once("drain", send);
          };
          send();
        }),
      ],
      "whose connection ends in the middle of the layer": [
        "answerLost",
        answer("/blobs/", (r) => {
          r.writeHead(200, { "content-length": String(AGENT_YAML.length) });
          r.write(AGENT_YAML.slice(0, 20), () => r.destroy());
        }),
      ],
      "that is redirected without end": [
        "serverFailed",
        answer("/manifests/", (r) => r.writeHead(302, endless).end()),
      ],
      "of an image that is no agent": [
        "notSupported",
        (registry) =>
          void registry.putAgent("team/pirate", "latest", AGENT_YAML, {
            config: { mediaType: "application/vnd.oci.image.config.v1+json" },
            annotations: {},
          }),
      ],
      "of an agent in a form of older versions": [
        "notSupported",
        layer({ mediaType: "application/vnd.oci.image.layer.v1.tar" }),
      ],
      "of a page that is no manifest": [
        "serverFailed",
        answer("/manifests/", (r) => r.end("<html>")),
      ],
      "from a registry that is overloaded": [
        "serverFailed",
        answer("/v2/", (r) => r.writeHead(503).end()),
      ],
    };
  for (const [what, [code, set]] of Object.entries(REFUSALS)) {
    it(`${what} fails with ${code}`, () =>
      withOciRegistry(async (registry) => {
        set(registry);
        assert.equal((await failure(registry)).code, code);
        assert.ok(registry.requests.length < 10);
      }));
  }

  for (const target of [
    "http://127.0.0.1:1/x",
    "https://localhost/x",
    "https://10.0.0.1/x",
    "https://169.254.169.254/latest/meta-data",
    "https://[::1]/x",
    "http://cdn.example/x",
    "https://ann:secret@cdn.example/x",
    "file:///etc/passwd",
  ]) {
    it(`from another machine does not follow a redirect to ${target}, nor gets a token there`, () =>
      withOciRegistry(async (registry) => {
        const options = {
          fetch: routed({ "reg.example": registry }),
          reference: "reg.example/team/pirate",
        };
        registry.intercept = redirect(target);
        assert.equal((await failure(registry, options)).code, "serverRefused");
        registry.intercept = () => false;
        registry.auth = { scheme: "bearer", realm: target };
        assert.equal((await failure(registry, options)).code, "serverRefused");
      }));
  }

  it("follows a redirect on this machine if the registry is here, too", () =>
    withOciRegistry((registry) =>
      withOciRegistry(async (other) => {
        const path = `/v2/team/pirate/blobs/${digestOf(AGENT_YAML)}`;
        registry.intercept = redirect(`http://${other.host}${path}`);
        assert.equal(
          (await pull(`${registry.host}/team/pirate`)).contentDigest,
          digestOf(AGENT_YAML),
        );
      }),
    ));

  it("ends after its time limit, and when it is cancelled", () =>
    withOciRegistry(async (registry) => {
      registry.intercept = () => true;
      assert.equal((await failure(registry, { timeout: 50 })).code, "unreachable");
      const controller = new AbortController();
      const options = { fetch: dial, credentialsFor: () => Promise.resolve(undefined) };
      const reference = parseReferenceOrThrow(`${registry.host}/team/pirate`);
      const running = pullAgent(reference, options, controller.signal);
      controller.abort(new HubError("cancelled", "enough"));
      await assert.rejects(running, { code: "cancelled" });
    }));
});

describe("credentials of docker login", () => {
  itIn("are found by the registry's host, in the forms that docker writes", async (folder) => {
    const auth = Buffer.from("ann:se:cret").toString("base64");
    const auths = {
      "ghcr.io": { auth },
      "https://index.docker.io/v1/": { username: "bob", password: "x" },
      "https://quay.io": { identitytoken: "t" },
    };
    await folder.write("home/.docker/config.json", JSON.stringify({ auths }));
    const read = (host: string) => readDockerCredentials(host, { HOME: folder.home });
    assert.deepEqual(await read("ghcr.io"), { username: "ann", password: "se:cret" });
    assert.deepEqual(await read("docker.io"), { username: "bob", password: "x" });
    assert.equal(await read("quay.io"), undefined);
    assert.equal(await read("example.com"), undefined);
    for (const text of ["{", "[]", '{"auths": 1}']) {
      await folder.write("home/.docker/config.json", text);
      assert.equal(await read("ghcr.io"), undefined);
    }
  });
});

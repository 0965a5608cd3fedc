import type { Api } from "toolmux/src/plugin/plugin.ts"; // for your editor: nothing of it is loaded

/** Refuses calls that would change a note with a protected title. `titles`: patterns with `*` and `?`. */
export default ({ definePlugin, globs, matchesGlob, v }: Api) =>
  definePlugin({
    name: "protected-titles",
    options: v.strictObject({ titles: globs }),
    setup: ({ titles }) => ({
      call(next, { definition }) {
        if (definition.annotations?.["readOnlyHint"] === true) return next;
        return async (call) => {
          const title = String(call.arguments["title"]);
          if (!titles.some((pattern) => matchesGlob(pattern, title))) return next(call);
          return call.refuse(`The note "${title}" is protected.`);
        };
      },
    }),
  });

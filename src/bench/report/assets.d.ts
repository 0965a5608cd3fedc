/** Files that are imported as texts: `import text from "…" with { type: "text" }`. */

declare module "*.css" {
  const text: string;
  export default text;
}

declare module "uplot/dist/uPlot.iife.min.js" {
  const text: string;
  export default text;
}

declare module "uplot/LICENSE" {
  const text: string;
  export default text;
}

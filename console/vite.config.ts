import { defineConfig } from "vite";

// The gateway serves the output: the page at `/`, everything else below `/console/`.
export default defineConfig({
  base: "/console/",
  build: {
    outDir: "../services/gateway/pages/console",
    emptyOutDir: true,
    target: "es2022",
    // Everything is a file of its own: the page's policy allows no `data:` scripts or workers.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 2_000,
    modulePreload: { polyfill: false },
  },
});

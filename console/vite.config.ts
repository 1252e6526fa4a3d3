import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// In development `npm run dev` serves the pages and hands everything else to a gateway; its
// `gateway.console.public_url` must then be http://localhost:5173 (see README.md).
const gateway = process.env.SLIPSTREAM_GATEWAY ?? "http://127.0.0.1:8000";

export default defineConfig({
  base: "/console/",
  plugins: [react()],
  server: {
    port: 5173,
    proxy: { "/admin": gateway, "/v1": gateway, "/console/api": gateway },
  },
  build: {
    outDir: "../control/console/dist",
    emptyOutDir: true,
    target: "es2023",
    // inlined images are data: addresses, which the content security policy refuses
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    manifest: true,
  },
});

// Rules for the console's JavaScript: what is recommended, and what keeps a mistake from passing as a habit.
// Types are TypeScript's (tsconfig.json): it reads the same files by their JSDoc.

import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    files: ["web/assets/**/*.js"],
    linterOptions: { reportUnusedDisableDirectives: "error" },
    languageOptions: { ecmaVersion: "latest", sourceType: "module", globals: { ...globals.browser } },
    rules: {
      "array-callback-return": "error",
      complexity: ["error", 15],
      "consistent-return": "off", // TypeScript's noImplicitReturns knows which functions end by throwing
      "default-case-last": "error",
      eqeqeq: "error",
      "max-lines": ["error", { max: 400 }],
      "no-await-in-loop": "off", // receipts, files and steps of a channel go one after another
      "no-caller": "error",
      "no-constant-condition": ["error", { checkLoops: "allExceptWhileTrue" }],
      "no-duplicate-imports": "error",
      "no-else-return": "error",
      "no-empty": ["error", { allowEmptyCatch: false }],
      "no-eval": "error",
      "no-extend-native": "error",
      "no-implicit-coercion": "error",
      "no-implicit-globals": "error",
      "no-implied-eval": "error",
      "no-lonely-if": "error",
      "no-loop-func": "error",
      "no-new-func": "error",
      "no-new-wrappers": "error",
      "no-param-reassign": "error",
      "no-promise-executor-return": "error",
      "no-return-assign": "error",
      "no-script-url": "error",
      "no-self-compare": "error",
      "no-sequences": "error",
      "no-shadow": ["error", { builtinGlobals: false }],
      "no-throw-literal": "error",
      "no-unmodified-loop-condition": "error",
      "no-unneeded-ternary": "error",
      "no-unreachable-loop": "error",
      "no-unused-expressions": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "no-use-before-define": ["error", { functions: false, classes: false, variables: false }],
      "no-useless-concat": "error",
      "no-useless-return": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-promise-reject-errors": "error",
      "prefer-rest-params": "error",
      "prefer-spread": "error",
      radix: "error",
      strict: ["error", "never"],
      yoda: "error",
    },
  },
  // What is loaded before the first paint, or in a sandbox, is a script and no module: what it names would be a global.
  { files: ["web/assets/theme.js", "web/assets/whole.js", "web/assets/screen/screen.js"], languageOptions: { sourceType: "script" } },
  { files: ["web/assets/paying/payer-worker.js"], languageOptions: { globals: { ...globals.worker } } },
];

"""A page with a button, on a rented device:  tally app examples/gradio_app.py

With `--gpu any` and an image that has PyTorch, what the button does may as well be a model's.
"""

import gradio as gr

with gr.Blocks(title="Seven") as page:
    number = gr.Number(6, label="Number", precision=0)
    answer = gr.Textbox(label="Answer")
    gr.Button("Times seven").click(lambda n: str(n * 7), number, answer)

page.launch()

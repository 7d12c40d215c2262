"""Laws that answer in the place of a label: label sets, randomised response, ALIBI."""

// Quotient of two unsigned numbers, a bit a clock; all ones if it does not fit or the divisor is 0.
//
// `done` is high for the clock in which `quotient` is there, WIDTH + 1 clocks after `start`; a start in between is not taken.
module es_divide #(
    parameter int WIDTH = 32  // bits of dividend, divisor and quotient
) (
    input wire clk,
    input wire rst,

    input wire start,
    input wire [WIDTH-1:0] dividend,
    input wire [WIDTH-1:0] divisor,
    output logic [WIDTH-1:0] quotient,
    output logic busy,
    output logic done
);
  if (WIDTH < 2) begin : gen_check
    $error("es_divide: WIDTH below 2");
  end

  logic [WIDTH-1:0] over, by;
  logic [WIDTH:0] shifted;
  logic [$clog2(WIDTH):0] left;
  logic fits;

  assign shifted = {over, quotient[WIDTH-1]};
  assign fits = shifted >= {1'b0, by};

  always_ff @(posedge clk) begin
    done <= busy && left == 1;
    if (!busy) begin
      if (start) begin
        quotient <= dividend;
        by <= divisor;
        over <= '0;
        left <= ($clog2(WIDTH) + 1)'(WIDTH);
        busy <= 1'b1;
      end
    end else begin
      over <= WIDTH'(fits ? shifted - {1'b0, by} : shifted);
      quotient <= {quotient[WIDTH-2:0], fits};
      left <= left - 1'b1;
      busy <= left != 1;
    end
    if (rst) begin
      busy <= 1'b0;
      done <= 1'b0;
    end
  end
endmodule

module prove_arbiter (
    input wire clk,
    input wire rst,
    input wire [3:0] request,
    input wire taken,
    input wire [1:0] any
);
  logic [3:0] grant;
  logic [1:0] index;
  logic begun = 1'b0;
  logic [1:0] who;  // chosen by the solver in the first clock
  logic [2:0] others = '0;

  always_ff @(posedge clk) begin
    begun <= 1'b1;
    if (!begun) who <= any;
    // How often others were granted while `who` asked.
    if (rst || !request[who] || (taken && grant[who])) others <= '0;
    else if (taken) others <= others + 1'b1;
  end
  always_comb if (!begun) assume (rst);

  es_arbiter #(.N(4)) dut (.*);

  always_comb begin
    if (begun && !rst) begin
      assert ((grant & ~request) == '0);
      assert ((grant & (grant - 1'b1)) == '0);
      assert ((request == '0) == (grant == '0));
      if (grant != '0) assert (grant[index]);
      assert (others <= 3'd3);
    end
  end
endmodule
